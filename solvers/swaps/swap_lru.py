"""Move what was used least recently when room is needed; read it back at its use.

Source: the cache of moDNN (DATE 2018) and SuperNeurons (PPoPP 2018) (rows 7 and 9 of
    docs/systems.md).
Deviations: None; the baseline that plans nothing.
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
class SwapLru:
    """Move what was used least recently when room is needed; read it back at its use."""

    name: ClassVar[str] = "swap-lru"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = (
        "the cache of moDNN (DATE 2018) and SuperNeurons (PPoPP 2018): on demand"
    )
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        moves = evict_on_demand(problem, least_recent, early=False)
        return solve_by(problem, [Proposal(moves=moves, timing=Timing(ahead=0))])
