"""The smallest peak that greedy replays reach: one after the other, each asked for less."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from memplan.planner.limits import lower_limit
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.solvers._replay import CIRCLES, SMALL, Replay, Weights, Workload

_MOST_RUNS = 8
"""A replay may run this many times the ops of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowest:
    """The end of the search.

    Attributes:
        sequence: Of the schedule with the smallest peak; empty where none fits.
        replays: How many were tried.
    """

    sequence: tuple[int, ...]
    replays: int


def lowest(problem: Problem, weights: Iterable[Weights], deadline: float) -> Lowest:
    """Return the sequence with the smallest peak, at most the budget.

    Those of `weights` that reach less than the ones before bisect how much less, down to the
    lower limit; the others cost one replay each. That is what makes it quick: replays that fail
    are slow, because they go in circles, and nearly all of these here fail only once.

    Args:
        problem: Its budget is where the search begins.
        weights: To be tried in this order.
        deadline: When to end, by `time.monotonic`.
    """
    graph = problem.graph
    work = Workload(graph)
    limit_bytes, _ = lower_limit(graph)
    most_runs = _MOST_RUNS * len(graph.ops) + 1000
    circles = CIRCLES if len(graph.ops) < SMALL else 1
    best: tuple[int, ...] = ()
    best_bytes = problem.budget_bytes + 1
    replays = 0
    for k, tried in enumerate(weights):
        if best_bytes <= limit_bytes:
            break
        refused_bytes = limit_bytes - 1
        asked_bytes = best_bytes - max(1, best_bytes // 1000)
        if k == 0:
            asked_bytes = (limit_bytes + best_bytes) // 2
        asked_bytes = max(limit_bytes, asked_bytes)
        while time.monotonic() < deadline:
            replay = Replay(work, asked_bytes, tried, float("inf"), most_runs, deadline)
            found = replay.run(circles)
            replays += 1
            if found is None:
                refused_bytes = asked_bytes
            else:
                best, best_bytes = found, simulate(graph, schedule_of(graph, found)).peak_bytes
            if best_bytes - refused_bytes <= max(1, best_bytes // 1000):
                break
            asked_bytes = (refused_bytes + best_bytes) // 2
    return Lowest(sequence=best, replays=replays)
