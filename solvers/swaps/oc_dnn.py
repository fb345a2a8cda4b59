"""Move everything that is saved, and read it back while the op before runs.

Source: Awan et al., "OC-DNN: Exploiting Advanced Unified Memory Capabilities", HiPC 2018 (row 28
    of docs/systems.md).
Deviations: Whole tensors in place of pages; what is advised to the driver there is planned here.
Exact?: No.
Complexity: O(ops + transfers x ops between).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.moves import Timing
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._swap_rules import (
    Proposal,
    heavy_ops,
    saved_gaps,
    solve_by,
    without_swap,
)


@dataclass(frozen=True, slots=True)
class OcDnn:
    """One heavy layer ahead, writes not waited for."""

    name: ClassVar[str] = "oc-dnn"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "OC-DNN (HiPC 2018): out after use, in one layer ahead"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        timing = Timing(ahead=1, heavy=heavy_ops(problem.graph))
        return solve_by(problem, [Proposal(moves=saved_gaps(problem.graph), timing=timing)])
