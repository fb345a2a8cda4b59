"""Run cheap first ops again, right before each op of the backward that reads what they make.

Source: none; it shows how a package adds a solver.
Deviations: none.
Exact?: No. Its schedule may not fit, or repeat too much.
Complexity: O(ops + reads).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status


@dataclass(frozen=True, slots=True)
class Toy:
    """Repeat the ops that read only what the step is given.

    Attributes:
        longest_ns: Ops that take longer are kept.
    """

    longest_ns: int = 10**9

    name: ClassVar[str] = "toy"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "the memplan contribution guide"

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the captured order with the repeats, if that fits."""
        graph = problem.graph
        sequence: list[int] = []
        for i, op in enumerate(graph.ops):
            made_by = [graph.producer[t] for t in op.inputs] if i >= graph.boundary else []
            sequence += [
                j for j in dict.fromkeys(made_by) if j is not None and self._cheap(j, problem)
            ]
            sequence.append(i)
        schedule = schedule_of(graph, sequence)
        if simulate(graph, schedule).peak_bytes > problem.budget_bytes:
            return Solution(status=Status.UNKNOWN, reason="repeating the cheap ops is not enough")
        return Solution(status=Status.FEASIBLE, schedule=schedule)

    def _cheap(self, op: int, problem: Problem) -> bool:
        graph = problem.graph
        given = all(graph.producer[t] is None for t in graph.ops[op].inputs)
        return given and graph.ops[op].recomputable and graph.ops[op].time_ns <= self.longest_ns
