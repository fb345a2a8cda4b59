"""What a driver does: the least recently used goes when room is needed; faults bring it back.

Source: unified memory of CUDA and HIP (row 29 of docs/systems.md).
Deviations: Whole tensors in place of pages.
Exact?: No.
Complexity: O(ops + evictions x tensors).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.moves import Timing
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._on_demand import evict_on_demand, least_recent
from memplan.solvers.swaps._swap_rules import Proposal, solve_by, without_swap


@dataclass(frozen=True, slots=True)
class UnifiedMemory:
    """The least recently used goes when room is needed; both wait."""

    name: ClassVar[str] = "unified-memory"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "unified memory of CUDA and HIP: on demand"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        moves = evict_on_demand(problem, least_recent, early=False)
        return solve_by(
            problem, [Proposal(moves=moves, timing=Timing(ahead=0, waits_at_once=True))]
        )
