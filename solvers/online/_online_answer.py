"""The answer of a solver that simulates one online run."""

from __future__ import annotations

from memplan.planner.problem import Problem
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.solvers.online._online import OnlineRun


def online_answer(problem: Problem, run: OnlineRun) -> Solution:
    """Run it and return its trace, or UNKNOWN where it got stuck."""
    graph = problem.graph
    schedule = run.run()
    stats = {"runs": run.runs}
    if schedule is None:
        where = graph.ops[run.now].name
        return Solution(
            status=Status.UNKNOWN,
            proven_bound_ns=graph.time_ns,
            reason=f"the online run got stuck at {where!r} after {run.runs} runs of ops",
            stats=stats,
        )
    optimal = simulate(graph, schedule).time_ns == graph.time_ns
    return Solution(
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        schedule=schedule,
        proven_bound_ns=graph.time_ns,
        stats=stats,
    )
