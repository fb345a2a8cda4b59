"""Keep every tensor until its last use: what plain PyTorch does, and the baseline.

Source: none; the order of the graph itself.
Deviations: none.
Exact?: Its schedule is optimal whenever it fits: no op runs twice. Where it does not fit it
    proves nothing.
Complexity: O(ops + reads).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status


@dataclass(frozen=True, slots=True)
class KeepAll:
    """No recomputation, no movement."""

    name: ClassVar[str] = "keep-all"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "plain PyTorch: every tensor is kept until its last use"
    may: ClassVar[tuple[str, ...]] = ("keep",)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the captured order with each tensor dropped after its last use."""
        if answer := settled(problem):
            return answer
        graph = problem.graph
        peak_bytes = simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes
        return Solution(
            status=Status.UNKNOWN,
            proven_bound_ns=graph.time_ns,
            reason=f"keeping everything takes {peak_bytes:,} bytes",
        )
