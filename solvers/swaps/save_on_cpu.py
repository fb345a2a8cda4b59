"""Move everything that is saved for the backward pass, and wait for each transfer.

Source: PyTorch's `torch.autograd.graph.save_on_cpu` hooks; the baseline of every swap system.
Deviations: A tensor leaves after its last forward reader, not when it is first saved.
Exact?: No.
Complexity: O(ops + transfers x ops between).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.moves import Timing
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._swap_rules import Proposal, saved_gaps, solve_by, without_swap


@dataclass(frozen=True, slots=True)
class SaveOnCpu:
    """Out after the last forward use, in at the use, both waited for."""

    name: ClassVar[str] = "save-on-cpu"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "torch.autograd.graph.save_on_cpu: everything out, back at its use"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return that one schedule if it fits."""
        if answer := without_swap(problem):
            return answer
        timing = Timing(ahead=0, waits_at_once=True)
        return solve_by(problem, [Proposal(moves=saved_gaps(problem.graph), timing=timing)])
