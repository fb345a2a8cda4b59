"""The oldest tensor without a forward reader left goes when room is needed.

Source: Jin et al., "Layrub: Layer-centric GPU memory reuse and data migration in extreme-scale
    deep learning systems", PPoPP 2018 (row 8 of docs/systems.md).
Deviations: No buffer is shared between layers.
Exact?: No.
Complexity: O(ops + evictions x tensors).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.moves import Timing
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._on_demand import evict_on_demand, oldest
from memplan.solvers.swaps._swap_rules import Proposal, solve_by, without_swap


@dataclass(frozen=True, slots=True)
class Layrub:
    """The oldest tensor without a forward reader left goes when room is needed."""

    name: ClassVar[str] = "layrub"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Jin et al.: on demand"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        moves = evict_on_demand(problem, oldest, early=True)
        return solve_by(problem, [Proposal(moves=moves, timing=Timing(ahead=1))])
