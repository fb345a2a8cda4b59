"""The smallest budget for which a solver finds a schedule."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from memplan.graph_capture.graph import Graph
from memplan.planner.limits import lower_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import load_solver

_TO_FIRST: dict[str, dict[str, Any]] = {"greedy": {"first_found": True, "replays": 24}}
"""Options that make a solver stop at its first schedule, or soon without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumBudget:
    """The end of the search.

    Attributes:
        limit_bytes: Proven: no schedule has a smaller peak.
        feasible_bytes: The smallest peak that was found.
        schedule: It has exactly that peak.
    """

    limit_bytes: int
    feasible_bytes: int
    schedule: Schedule


def minimum_budget(
    graph: Graph, solver_name: str = "greedy", limits: Limits | None = None
) -> MinimumBudget:
    """Search for the smallest budget between the proven limit and the unplanned peak.

    Bisection; each schedule found counts with its own peak. It ends within a thousandth of the
    peak, or when `limits.time_s` is over. As a heuristic may fail where a smaller budget
    works, the answer is feasible but not proven to be the least.

    Args:
        graph: The step.
        solver_name: The solver that is asked at each budget.
        limits: Of the whole search; each budget gets an eighth of the time at most.

    Raises:
        UnknownSolver: There is no such solver.
    """
    limits = limits or Limits()
    deadline = time.monotonic() + limits.time_s
    solver = load_solver(solver_name, **_TO_FIRST.get(solver_name, {}))
    limit_bytes, _ = lower_limit(graph)
    schedule = schedule_of(graph, range(len(graph.ops)))
    feasible_bytes = simulate(graph, schedule).peak_bytes
    refused_bytes = limit_bytes - 1
    budget_bytes = limit_bytes
    while refused_bytes < budget_bytes < feasible_bytes:
        left_s = min(limits.time_s / 8, deadline - time.monotonic())
        if left_s <= 0:
            break
        asked = Limits(time_s=left_s, seed=limits.seed, threads=limits.threads)
        solution = solver.solve(Problem(graph=graph, budget_bytes=budget_bytes), asked)
        if solution.schedule is not None:
            schedule = solution.schedule
            feasible_bytes = simulate(graph, schedule).peak_bytes
        else:
            refused_bytes = budget_bytes
        if feasible_bytes - refused_bytes <= feasible_bytes // 1000:
            break
        budget_bytes = (refused_bytes + feasible_bytes) // 2
    return MinimumBudget(limit_bytes=limit_bytes, feasible_bytes=feasible_bytes, schedule=schedule)
