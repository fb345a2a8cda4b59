"""Move what can be moved for nothing; then the cheaper of moving and recomputing.

Source: Peng et al., "Capuchin: Tensor-based GPU Memory Management for Deep Learning", ASPLOS
    2020 (row 10 of docs/systems.md).
Deviations: The profile is that of the graph. Where the choice does not fit, it is made again for
    a larger excess. Reads start when they are on time, which is what its feedback is for.
Exact?: No.
Complexity: O(ops + transfers x ops between).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.checkpoints import forward_end
from memplan.planner.moves import Move
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._swap_rules import (
    Proposal,
    begins_ns,
    excess_bytes,
    kept_but,
    saved_gaps,
    solve_by,
    without_swap,
)


@dataclass(frozen=True, slots=True)
class Capuchin:
    """Free time first, then memory saved per second.

    Attributes:
        recomputes: Whether it may recompute; without, it moves alone.
        margins: Shares of the excess that are tried, in order.
    """

    name: ClassVar[str] = "capuchin"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Capuchin (ASPLOS 2020): free time, then memory saving per second"
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    recomputes: bool = True
    margins: tuple[float, ...] = (1.0, 1.15, 1.3, 1.6, 2.0, 3.0, 1e9)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the first choice that fits."""
        if answer := without_swap(problem):
            return answer
        return solve_by(problem, self._proposals(problem), first=True)

    def _proposals(self, problem: Problem) -> Iterator[Proposal]:
        graph = problem.graph
        excess = excess_bytes(problem)
        for margin in self.margins:
            moved, made = self._choose(problem, margin * excess)
            sequence, moves = kept_but(graph, made, moved)
            yield Proposal(moves=moves, sequence=sequence)

    def _choose(self, problem: Problem, need: float) -> tuple[frozenset[int], frozenset[int]]:
        """Return the tensors to move and those to make again, which cover `need` bytes."""
        graph, tier = problem.graph, problem.tiers[0]
        gaps = saved_gaps(graph)
        size = {gap.tensor: graph.tensors[gap.tensor].nbytes for gap in gaps}
        begins = begins_ns(graph)
        lane_left_ns = begins[forward_end(graph)]
        free_ns = {gap: _free_ns(problem, begins, gap) for gap in gaps}
        moved: set[int] = set()
        made: set[int] = set()
        rest: list[Move] = []
        for gap in sorted(gaps, key=lambda gap: (-free_ns[gap], gap.tensor)):
            write_ns = tier.write_ns(size[gap.tensor])
            if need > 0 and free_ns[gap] >= 0 and write_ns <= lane_left_ns:
                moved.add(gap.tensor)
                lane_left_ns -= write_ns
                need -= size[gap.tensor]
            else:
                rest.append(gap)

        def again_ns(gap: Move) -> float:
            source = graph.producer[gap.tensor]
            if source is None or not graph.ops[source].recomputable or not self.recomputes:
                return float("inf")
            return graph.ops[source].time_ns + 1.0

        rest.sort(key=lambda gap: (-size[gap.tensor] / again_ns(gap), gap.tensor))
        for gap in rest:
            if need <= 0:
                break
            t = gap.tensor
            lane_ns = max(0, -free_ns[gap], tier.write_ns(size[t]) - lane_left_ns)
            if again_ns(gap) < lane_ns:
                made.add(t)
            else:
                moved.add(t)
                lane_left_ns -= tier.write_ns(size[t])
            need -= size[t]
        return frozenset(moved), frozenset(made)


def _free_ns(problem: Problem, begins: list[int], gap: Move) -> int:
    """Time between the end of the write and the start of the read, where the lanes are idle."""
    tier, nbytes = problem.tiers[0], problem.graph.tensors[gap.tensor].nbytes
    away_ns = begins[gap.back] - begins[gap.out + 1]
    return away_ns - tier.write_ns(nbytes) - tier.read_ns(nbytes)
