"""Try no swap, the maps of heavy layers, then all maps, and take the first that fits.

Source: Rhu et al., "vDNN", MICRO 2016, the dynamic policy (row 6 of docs/systems.md).
Deviations: The trial runs are simulated; convolution algorithms stay as they are. Writes are not
    waited for, as in vDNN++ (Shriram et al. 2019).
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
    read_by_heavy,
    saved_gaps,
    solve_by,
    without_swap,
)


@dataclass(frozen=True, slots=True)
class VdnnDyn:
    """The least of three fixed choices."""

    name: ClassVar[str] = "vdnn-dyn"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "vDNN (MICRO 2016), policy dyn, with trial runs in the simulator"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the first choice that fits."""
        if answer := without_swap(problem):
            return answer
        graph = problem.graph
        timing = Timing(ahead=1, heavy=heavy_ops(graph))
        choices = (read_by_heavy(graph), saved_gaps(graph))
        proposals = (Proposal(moves=moves, timing=timing) for moves in choices)
        return solve_by(problem, proposals, first=True)
