"""At the op that needs the most memory, take what saves the most for its time.

Source: Nie et al., "TSPLIT: Fine-grained GPU Memory Management for Efficient DNN Training via
    Tensor Splitting", ICDE 2022 (row 16 of docs/systems.md).
Deviations: No op is split: what runs at the peak stays whole, so that budgets below it are
    refused.
Exact?: No.
Complexity: O(tensors x ops).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.moves import live_bytes_of
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._swap_rules import (
    Proposal,
    begins_ns,
    kept_but,
    saved_gaps,
    solve_by,
    without_swap,
)


@dataclass(frozen=True, slots=True)
class Tsplit:
    """The greedy at the peak, without the splitting.

    Attributes:
        rounds: How many tensors are chosen at most.
    """

    name: ClassVar[str] = "tsplit"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "TSPLIT (ICDE 2022), its rule at the peak op without the splitting"
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    rounds: int = 2000

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the schedule once no op passes the budget."""
        if answer := without_swap(problem):
            return answer
        moved, made = self._choose(problem)
        sequence, moves = kept_but(problem.graph, made, moved)
        both = frozenset(moved | made)
        all_moved = kept_but(problem.graph, frozenset(), both)[1]
        return solve_by(
            problem,
            (Proposal(moves=moves, sequence=sequence), Proposal(moves=all_moved)),
            first=True,
        )

    def _choose(self, problem: Problem) -> tuple[frozenset[int], frozenset[int]]:
        """Return the tensors to move and those to make again."""
        graph, tier = problem.graph, problem.tiers[0]
        begins = begins_ns(graph)
        live = live_bytes_of(graph, range(len(graph.ops)))
        left = list(saved_gaps(graph))
        lane_ns = 0
        moved: set[int] = set()
        made: set[int] = set()
        for _ in range(self.rounds):
            at = int(live.argmax())
            if live[at] <= problem.budget_bytes - tier.buffer_bytes:
                break
            idle = [gap for gap in left if gap.out < at < gap.back]
            if not idle:
                break
            costs: list[tuple[float, int, bool]] = []
            for k, gap in enumerate(idle):
                nbytes = graph.tensors[gap.tensor].nbytes
                room_ns = begins[gap.back] - begins[gap.out + 1] - lane_ns
                move_ns = max(0, tier.write_ns(nbytes) + tier.read_ns(nbytes) - room_ns)
                costs.append((move_ns / nbytes, k, False))
                source = graph.producer[gap.tensor]
                if source is not None and graph.ops[source].recomputable:
                    costs.append((graph.ops[source].time_ns / nbytes, k, True))
            _, k, again = min(costs)
            gap = idle[k]
            nbytes = graph.tensors[gap.tensor].nbytes
            (made if again else moved).add(gap.tensor)
            lane_ns += 0 if again else tier.write_ns(nbytes)
            live[gap.out + 1 : gap.back] -= nbytes
            left.remove(gap)
        return frozenset(moved), frozenset(made)
