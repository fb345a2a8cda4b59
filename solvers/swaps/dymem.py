"""As `layrub`, read back one heavy op ahead: reference counts decide what may go.

Source: Dymem, as surveys describe it; its paper was not found (row 14 of docs/systems.md).
Deviations: Only what the surveys say is built.
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
from memplan.solvers.swaps._swap_rules import Proposal, heavy_ops, solve_by, without_swap


@dataclass(frozen=True, slots=True)
class Dymem:
    """As `layrub`, read back one heavy op ahead: reference counts decide what may go."""

    name: ClassVar[str] = "dymem"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Dymem: on demand"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        moves = evict_on_demand(problem, oldest, early=True)
        return solve_by(
            problem,
            [Proposal(moves=moves, timing=Timing(ahead=1, heavy=heavy_ops(problem.graph)))],
        )
