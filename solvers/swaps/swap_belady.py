"""Move what is used last when room is needed; read it back at its use.

Source: Belady 1966; the planner of SwapAdvisor (ASPLOS 2020) and PatrickStar (TPDS 2022) (row 30
    of docs/systems.md).
Deviations: None; the baseline that knows the future but starts nothing early.
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
class SwapBelady:
    """Move what is used last when room is needed; read it back at its use."""

    name: ClassVar[str] = "swap-belady"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = (
        "Belady 1966, as in SwapAdvisor (ASPLOS 2020): out on demand, in at the use"
    )
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        moves = evict_on_demand(problem, farthest, early=False)
        return solve_by(problem, [Proposal(moves=moves, timing=Timing(ahead=0))])
