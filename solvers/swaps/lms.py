"""Move what is not used for long: the largest distance and the earliest reads that fit.

Source: Le et al., "Automatic GPU Memory Management for Large Neural Models in TensorFlow"
    (TFLMS), ISMM 2019 (row 15 of docs/systems.md).
Deviations: The distance counts ops of the captured order. Readers share a read as long as the
    tensor is there.
Exact?: No.
Complexity: O(log ops) placements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.moves import Move, Timing, place
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._swap_rules import Proposal, saved_gaps, solve_by, without_swap


@dataclass(frozen=True, slots=True)
class Lms:
    """A threshold on the distance, found with the simulator."""

    name: ClassVar[str] = "lms"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = (
        "TFLMS (ISMM 2019): distance threshold by binary search in the simulator"
    )
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the fastest schedule at the largest threshold that fits."""
        if answer := without_swap(problem):
            return answer
        gaps = saved_gaps(problem.graph)
        moves = _farthest(problem, gaps)
        most = _earliest(problem, moves)
        steps = sorted({most, most // 2, most // 4, 1, 0})
        proposals = [Proposal(moves=moves, timing=Timing(ahead=ahead)) for ahead in steps]
        return solve_by(problem, [*proposals, Proposal(moves=moves)])


def _farthest(problem: Problem, gaps: list[Move]) -> list[Move]:
    """Return the gaps beyond the largest threshold that fits; all where none does."""
    order = range(len(problem.graph.ops))
    low, high = 0, len(problem.graph.ops)
    while high - low > 1:
        middle = (low + high) // 2
        beyond = [gap for gap in gaps if gap.back - gap.out > middle]
        fits = place(problem, order, beyond, Timing(ahead=0)).schedule is not None
        low, high = (middle, high) if fits else (low, middle)
    return [gap for gap in gaps if gap.back - gap.out > low]


def _earliest(problem: Problem, moves: list[Move]) -> int:
    """Return how many ops ahead of its use a tensor may be read at most."""
    low, high = 0, len(problem.graph.ops)
    order = range(high)
    while high - low > 1:
        middle = (low + high) // 2
        fits = place(problem, order, moves, Timing(ahead=middle)).schedule is not None
        low, high = (middle, high) if fits else (low, middle)
    return low
