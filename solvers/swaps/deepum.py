"""What is used last goes early, and everything comes back in the order of its use.

Source: Jung, Kim and Lee, "DeepUM: Tensor Migration and Prefetching in Unified Memory", ASPLOS
    2023 (row 27 of docs/systems.md).
Deviations: The order of a captured step is known, so that its predictor is exact; whole tensors
    in place of pages.
Exact?: No.
Complexity: O(ops + evictions x tensors).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.moves import Timing
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._on_demand import evict_on_demand, farthest
from memplan.solvers.swaps._swap_rules import Proposal, solve_by, without_swap


@dataclass(frozen=True, slots=True)
class Deepum:
    """What is used last goes early, and everything comes back in the order of its use."""

    name: ClassVar[str] = "deepum"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Jung: on demand"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        moves = evict_on_demand(problem, farthest, early=True)
        return solve_by(problem, [Proposal(moves=moves, timing=Timing())])
