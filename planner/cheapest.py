"""Judges the plans of a method that tries several."""

from __future__ import annotations

from collections.abc import Iterable

from memplan.planner.problem import Problem
from memplan.planner.schedule import Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status


def cheapest_within(problem: Problem, plans: Iterable[tuple[int, ...]]) -> Solution:
    """Return the cheapest of `plans`, sequences of ops, whose peak is within the budget.

    OPTIMAL where it recomputes nothing that takes time; UNKNOWN where none fits.
    """
    graph = problem.graph
    best: tuple[int, int] | None = None
    schedule: Schedule | None = None
    lowest_bytes, count = None, 0
    for sequence in plans:
        count += 1
        candidate = schedule_of(graph, sequence)
        timeline = simulate(graph, candidate)
        if lowest_bytes is None or timeline.peak_bytes < lowest_bytes:
            lowest_bytes = timeline.peak_bytes
        if timeline.peak_bytes > problem.budget_bytes:
            continue
        score = (timeline.time_ns, timeline.peak_bytes)
        if best is None or score < best:
            best, schedule = score, candidate
    stats = {"plans": count}
    if best is None:
        return Solution(
            status=Status.UNKNOWN,
            proven_bound_ns=graph.time_ns,
            reason=f"the smallest peak of {count} plans is {lowest_bytes or 0:,} bytes",
            stats=stats,
        )
    return Solution(
        status=Status.OPTIMAL if best[0] == graph.time_ns else Status.FEASIBLE,
        schedule=schedule,
        proven_bound_ns=graph.time_ns,
        stats=stats,
    )
