"""Move the first tensors of the forward pass, as many as the excess takes.

Source: Bae et al., "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks",
    FAST 2021 (row 12 of docs/systems.md).
Deviations: Nothing is compressed. Where the first tensors do not suffice, more are taken, up to
    all. Reads start when they are on time.
Exact?: No.
Complexity: O(ops + transfers x ops between).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._swap_rules import (
    Proposal,
    excess_bytes,
    first_covering,
    saved_gaps,
    solve_by,
    without_swap,
)


@dataclass(frozen=True, slots=True)
class Flashneuron:
    """A prefix of the saved tensors.

    Attributes:
        least_bytes: Smaller tensors stay.
        margins: Shares of the excess that are tried, in order.
    """

    name: ClassVar[str] = "flashneuron"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = (
        "FlashNeuron (FAST 2021): the first saved tensors that cover the excess"
    )
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    least_bytes: int = 0
    margins: tuple[float, ...] = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 1e9)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the first prefix that fits."""
        if answer := without_swap(problem):
            return answer
        gaps = saved_gaps(problem.graph, self.least_bytes)
        excess = excess_bytes(problem)
        proposals = (
            Proposal(moves=first_covering(problem.graph, gaps, margin * excess))
            for margin in self.margins
        )
        return solve_by(problem, proposals, first=True)
