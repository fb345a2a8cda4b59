"""Choose how many bytes to move; the rest is recomputed.

Source: Liao et al., "LoHan: Low-Cost High-Performance Framework to Fine-Tune 100B Model on a
    Consumer GPU" (Ratel), ICDE 2025 (row 21 of docs/systems.md).
Deviations: The time of each choice comes from the simulator, not from a convex model. What is
    neither moved nor needed to fit is kept.
Exact?: No.
Complexity: O(splits) placements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._swap_rules import (
    Proposal,
    excess_bytes,
    kept_but,
    saved_gaps,
    solve_by,
    without_swap,
)


@dataclass(frozen=True, slots=True)
class Lohan:
    """Prefixes by time to make again over size.

    Attributes:
        splits: How many numbers of bytes are tried.
    """

    name: ClassVar[str] = "lohan"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "LoHan (ICDE 2025): the best split between moved and recomputed bytes"
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    splits: int = 12

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the fastest split that fits."""
        if answer := without_swap(problem):
            return answer
        return solve_by(problem, self._proposals(problem))

    def _proposals(self, problem: Problem) -> Iterator[Proposal]:
        graph = problem.graph
        tensors = list(dict.fromkeys(gap.tensor for gap in saved_gaps(graph)))
        again_ns = {t: _again_ns(problem, t) for t in tensors}
        size = {t: graph.tensors[t].nbytes for t in tensors}
        tensors.sort(key=lambda t: (-again_ns[t] / size[t], t))
        excess, total_bytes = excess_bytes(problem), sum(size.values())
        for k in range(self.splits + 1):
            moved = _leading(tensors, size, total_bytes * k / self.splits)
            rest = [t for t in reversed(tensors) if t not in moved and again_ns[t] < float("inf")]
            left_bytes = excess - sum(size[t] for t in moved)
            for margin in (1.0, 1.5, 1e9):
                made = _leading(rest, size, left_bytes * margin)
                sequence, moves = kept_but(graph, made, moved)
                yield Proposal(moves=moves, sequence=sequence)


def _again_ns(problem: Problem, t: int) -> float:
    source = problem.graph.producer[t]
    if source is None or not problem.graph.ops[source].recomputable:
        return float("inf")
    return problem.graph.ops[source].time_ns


def _leading(tensors: list[int], size: dict[int, int], nbytes: float) -> frozenset[int]:
    """Return the first of `tensors` that have `nbytes` together."""
    chosen: set[int] = set()
    for t in tensors:
        if nbytes <= 0:
            break
        chosen.add(t)
        nbytes -= size[t]
    return frozenset(chosen)
