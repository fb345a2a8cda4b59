"""Move what is large and cold: much time between few accesses.

Source: Han et al., "Hotness- and Lifetime-Aware Data Placement and Migration for High-
    Performance Deep Learning on Heterogeneous Memory Systems", IEEE TC 2020 (row 13 of
    docs/systems.md).
Deviations: No op reads the slow memory itself, so that placement becomes moving after the last
    forward use.
Exact?: No.
Complexity: O(ops + transfers x ops between).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.moves import Move
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.swaps._swap_rules import (
    Proposal,
    begins_ns,
    excess_bytes,
    first_covering,
    saved_gaps,
    solve_by,
    without_swap,
)


@dataclass(frozen=True, slots=True)
class Halo:
    """By gap x size / accesses.

    Attributes:
        margins: Shares of the excess that are tried, in order.
    """

    name: ClassVar[str] = "halo"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "HALO (IEEE TC 2020): large, cold, long-lived tensors first"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    margins: tuple[float, ...] = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 1e9)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the first choice that fits."""
        if answer := without_swap(problem):
            return answer
        graph, begins = problem.graph, begins_ns(problem.graph)

        def coldness(gap: Move) -> float:
            away_ns = begins[gap.back] - begins[gap.out + 1]
            return away_ns * graph.tensors[gap.tensor].nbytes / len(graph.consumers[gap.tensor])

        gaps = sorted(saved_gaps(graph), key=lambda gap: (-coldness(gap), gap.tensor))
        excess = excess_bytes(problem)
        proposals = (
            Proposal(moves=first_covering(graph, gaps, margin * excess)) for margin in self.margins
        )
        return solve_by(problem, proposals, first=True)
