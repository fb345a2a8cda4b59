"""The smallest peak that greedy replays reach: one after the other, each asked for less."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from memplan.planner.checkpoints import forward_end, sequence_keeping
from memplan.planner.limits import lower_limit
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.solvers._replay import CIRCLES, SMALL, Replay, Weights, Workload
from memplan.solvers.programs._windows import forward_cuts

_SEGMENTS = (5, 10, 20, 40, 80, 160)
"""Into how many parts checkpoints cut the forward phase at most."""

_LARGE = 1000
"""Ops from which on a replay takes long."""

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
    search = _Search(problem, deadline)
    search.checkpoint()
    try:
        for tried in weights:
            if search.best_bytes <= search.limit_bytes or time.monotonic() >= deadline:
                break
            search.lower(tried)
    except KeyboardInterrupt:
        if not search.best:
            raise
    return Lowest(sequence=search.best, replays=search.replays)


class _Search:
    """The smallest peak so far."""

    def __init__(self, problem: Problem, deadline: float) -> None:
        self.graph, self.deadline = problem.graph, deadline
        self.work = Workload(problem.graph)
        self.limit_bytes, _ = lower_limit(problem.graph)
        self.best: tuple[int, ...] = ()
        self.best_bytes = problem.budget_bytes + 1
        self.replays = 0

    def checkpoint(self) -> None:
        """Begin with checkpoints where few bytes are alive, where replays are slow."""
        graph = self.graph
        if len(graph.ops) < _LARGE:
            return
        end = forward_end(graph)
        for segments in _SEGMENTS:
            sequence = sequence_keeping(graph, forward_cuts(graph, end, segments), end)
            peak_bytes = simulate(graph, schedule_of(graph, sequence)).peak_bytes
            if peak_bytes < self.best_bytes:
                self.best, self.best_bytes = sequence, peak_bytes

    def lower(self, weights: Weights) -> None:
        """Ask for a little less, or at first for half way down; bisect from there."""
        refused_bytes, least_step = self.limit_bytes - 1, max(1, self.best_bytes // 1000)
        asked_bytes = max(self.limit_bytes, self.best_bytes - least_step)
        if not self.replays and not self.best:
            asked_bytes = (self.limit_bytes + self.best_bytes) // 2
        while time.monotonic() < self.deadline:
            if not self._reach(asked_bytes, weights):
                refused_bytes = asked_bytes
            if self.best_bytes - refused_bytes <= least_step:
                break
            asked_bytes = (refused_bytes + self.best_bytes) // 2

    def _reach(self, asked_bytes: int, weights: Weights) -> bool:
        ops = len(self.graph.ops)
        most_runs, circles = _MOST_RUNS * ops + 1000, CIRCLES if ops < SMALL else 1
        replay = Replay(self.work, asked_bytes, weights, float("inf"), most_runs, self.deadline)
        found = replay.run(circles)
        self.replays += 1
        if found is None:
            return False
        self.best = found
        self.best_bytes = simulate(self.graph, schedule_of(self.graph, found)).peak_bytes
        return True
