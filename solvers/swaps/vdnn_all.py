"""Move every feature map; read it back one heavy layer ahead.

Source: Rhu et al., "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural
    Network Design", MICRO 2016 (row 6 of docs/systems.md).
Deviations: An op stands for a layer; matrix products count as heavy, too. Convolution algorithms
    stay as they are.
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
class VdnnAll:
    """Everything that is saved leaves.

    Attributes:
        waits_at_once: Whether compute waits for each write, as the original does at the end of a
            layer.
    """

    name: ClassVar[str] = "vdnn-all"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "vDNN (MICRO 2016), policy all"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    waits_at_once: bool = True

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        graph = problem.graph
        timing = Timing(ahead=1, heavy=heavy_ops(graph), waits_at_once=self.waits_at_once)
        return solve_by(problem, [Proposal(moves=saved_gaps(graph), timing=timing)])
