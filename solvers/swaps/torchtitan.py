"""Move what the link carries for nothing; make again what is cheapest a byte for the rest.

Source: PyTorch's torchtitan, its automatic choice between keeping, offloading and recomputing
    saved tensors.
Deviations: After what is known of its rule, not its code: it works on the layers of a transformer
    and on CUDA, this on every saved tensor of any graph. Where the choice does not fit it is made
    again for a larger excess.
Exact?: No.
Complexity: O(tensors log tensors) and a placement for each margin.
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
class Torchtitan:
    """A greedy by recompute time a byte, with the link as a second purse.

    Attributes:
        least_bytes: Smaller tensors are not moved.
        margins: Shares of the excess that are tried, in order.
    """

    name: ClassVar[str] = "torchtitan"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "torchtitan: offload what the link hides, recompute the cheapest rest"
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    least_bytes: int = 2**20
    margins: tuple[float, ...] = (1.0, 1.15, 1.3, 1.6, 2.0, 3.0, 1e9)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the first choice that fits."""
        if answer := without_swap(problem):
            return answer
        return solve_by(problem, self._proposals(problem), first=True)

    def _proposals(self, problem: Problem) -> Iterator[Proposal]:
        excess = excess_bytes(problem)
        for margin in self.margins:
            moved, made = self._choose(problem, margin * excess)
            sequence, moves = kept_but(problem.graph, made, moved)
            yield Proposal(moves=moves, sequence=sequence)
        everything = frozenset(gap.tensor for gap in saved_gaps(problem.graph))
        yield Proposal(moves=kept_but(problem.graph, frozenset(), everything)[1])

    def _choose(self, problem: Problem, need: float) -> tuple[frozenset[int], frozenset[int]]:
        """Return the tensors to move and those to make again, which cover `need` bytes.

        The dearest to make again a byte are moved first, as far as the forward pass hides it.
        """
        graph, tier = problem.graph, problem.tiers[0]
        gaps = {gap.tensor: gap for gap in saved_gaps(graph)}
        size = {t: graph.tensors[t].nbytes for t in gaps}
        again_ns = {t: _again_ns(problem, t) for t in gaps}
        begins = begins_ns(graph)
        lane_left_ns = begins[forward_end(graph)]
        moved: list[int] = []
        for t in sorted(gaps, key=lambda t: (-again_ns[t] / size[t], t)):
            write_ns = tier.write_ns(size[t])
            if need <= 0:
                break
            if size[t] < self.least_bytes or write_ns > lane_left_ns:
                continue
            if _is_hidden(gaps[t], begins, write_ns + tier.read_ns(size[t])):
                moved.append(t)
                lane_left_ns -= write_ns
                need -= size[t]
        made: list[int] = []
        left = [t for t in gaps if t not in set(moved) and again_ns[t] < float("inf")]
        for t in sorted(left, key=lambda t: (again_ns[t] / size[t], t)):
            if need <= 0:
                break
            made.append(t)
            need -= size[t]
        return frozenset(moved), frozenset(made)


def _is_hidden(gap: Move, begins: list[int], transfers_ns: int) -> bool:
    """Return whether a tensor can go and come back between its two uses."""
    return begins[gap.back] - begins[gap.out + 1] >= transfers_ns


def _again_ns(problem: Problem, t: int) -> float:
    source = problem.graph.producer[t]
    if source is None or not problem.graph.ops[source].recomputable:
        return float("inf")
    return problem.graph.ops[source].time_ns
