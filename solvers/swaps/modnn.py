"""Choose as on demand, then start every write early and every read on time.

Source: Chen et al., "moDNN: Memory Optimal DNN Training on GPUs", DATE 2018 (row 7 of
    docs/systems.md).
Deviations: The batch is not split; convolution algorithms stay as they are.
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
class Modnn:
    """Choose as on demand, then start every write early and every read on time."""

    name: ClassVar[str] = "modnn"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Chen et al.: on demand"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        moves = evict_on_demand(problem, least_recent, early=True)
        return solve_by(problem, [Proposal(moves=moves, timing=Timing())])
