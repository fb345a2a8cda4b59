"""The windowed MILP: keep or recompute every tensor, in a model that grows with the graph.

Source: none; a model of this project. Its rows are those of Checkmate (Jain et al., MLSys 2020,
    section 4) with many first runs to a stage, and without FREE variables: the last op of a
    window that may read a tensor is known beforehand, as in MONeT (Shah et al., ICLR 2021).
Deviations: A window is cut where few bytes are alive. An op may run again only in the windows in
    which what it makes is read, directly or for a recomputation, and `ahead` windows before.
    After the ops at which memory is scarcest a window begins in any case. The windows of the
    backward phase are divided further from one model to the next.
Exact?: In its own space only: recomputations run at the start of a window, in captured order, each
    once. The bound there is `model_bound_ns`; it is no bound for other schedules.
Complexity: O(ops x ahead) binaries; the time is that of HiGHS.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from memplan.planner.checkpoints import forward_end
from memplan.planner.limits import below_limit
from memplan.planner.polish import polish
from memplan.planner.problem import Limits, Problem
from memplan.planner.prune import prepare
from memplan.planner.schedule import Schedule, keeps_order, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver
from memplan.planner.verify import is_valid
from memplan.solvers._proof import scarce_ops
from memplan.solvers.programs._milp import Outcome
from memplan.solvers.programs._windowed_model import Decisions, WindowedModel
from memplan.solvers.programs._windows import split_later, window_starts


@dataclass(frozen=True, slots=True)
class Windowed:
    """The MILP, with windows as fine as it takes.

    Attributes:
        start: A schedule to start from, ignored unless valid and in captured order; None to ask
            the greedy replay.
        ahead: How many windows before it is read a tensor may be made again.
        parts: Into how many parts the backward windows are divided, one model after the other;
            each but the last gets half of the time that is left.
        most_binaries: Larger models are not tried: HiGHS would not even end in time.
        gap: Stop when the solution is proven within this share of the extra time.
    """

    name: ClassVar[str] = "windowed"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "windowed keep/recompute MILP in HiGHS, after Checkmate and MONeT"
    needs: ClassVar[tuple[str, ...]] = ("highspy",)

    start: Schedule | None = field(default=None, repr=False)
    ahead: int = 1
    parts: tuple[int, ...] = (1, 3, 1000)
    most_binaries: int = 12_000
    gap: float = 1e-3

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best schedule of the model, polished, or the start where that is better."""
        if refusal := below_limit(problem):
            return refusal
        prepare()
        deadline = time.monotonic() + limits.time_s
        search = _Search(problem, self, limits, deadline)
        search.offer(self._first(problem, limits))
        for k, parts in enumerate(self.parts):
            if search.is_over():
                break
            left_s = deadline - time.monotonic()
            if not search.refine(parts, left_s if k == len(self.parts) - 1 else left_s / 2):
                break
        return search.solution()

    def _first(self, problem: Problem, limits: Limits) -> tuple[int, ...] | None:
        if self.start is not None:
            usable = keeps_order(self.start) and is_valid(problem, self.start)
            return sequence_of(self.start) if usable else None
        quick = Limits(time_s=limits.time_s / 4, seed=limits.seed, threads=limits.threads)
        found = load_solver("greedy").solve(problem, quick).schedule
        return None if found is None else sequence_of(found)


class _Search:
    """The best sequence so far."""

    def __init__(
        self, problem: Problem, options: Windowed, limits: Limits, deadline: float
    ) -> None:
        self.problem, self.options = problem, options
        self.limits, self.deadline = limits, deadline
        self.best: tuple[int, ...] | None = None
        self.best_ns: float = float("inf")
        self.model_bound_ns: int | None = None
        self.stats: dict[str, float] = {}

    def is_over(self) -> bool:
        """Whether there is nothing left to gain, or no time."""
        return self.best_ns <= self.problem.graph.time_ns or time.monotonic() >= self.deadline

    def offer(self, sequence: Sequence[int] | None) -> None:
        """Keep a sequence if it fits and is the fastest so far."""
        if sequence is None:
            return
        graph = self.problem.graph
        timeline = simulate(graph, schedule_of(graph, sequence))
        if timeline.peak_bytes > self.problem.budget_bytes or timeline.time_ns >= self.best_ns:
            return
        self.best, self.best_ns = tuple(sequence), timeline.time_ns

    def refine(self, parts: int, time_s: float) -> bool:
        """Solve the model with each backward window divided into `parts`.

        Returns:
            Whether it was small enough; with more parts it is larger.
        """
        until = time.monotonic() + time_s
        problem, graph = self.problem, self.problem.graph
        scarce = [b + 1 for b in scarce_ops(problem)[:4]]
        coarse = sorted({*window_starts(graph), *(b for b in scarce if b < len(graph.ops))})
        starts = split_later(coarse, forward_end(graph), len(graph.ops), parts)
        decisions = Decisions(problem, starts, coarse, self.options.ahead)
        runs = sum(map(len, decisions.again))
        if runs > min(self.options.most_binaries, _BUILT_PER_S * (until - time.monotonic())):
            return False
        model = WindowedModel(problem, decisions)
        if sum(model.program.integer) > self.options.most_binaries:
            return False
        start = None if self.best is None else model.start(self.best)
        if start is None and self.best is not None:
            # What cannot be a start is at least a limit.
            model.require_faster_than(self.best_ns)
        result = model.program.solve(
            until - time.monotonic(),
            self.limits.threads,
            self.limits.seed,
            self.options.gap,
            start,
        )
        self.stats["windows"] = len(starts)
        self.stats["binaries"] = sum(model.program.integer)
        if result.outcome is Outcome.INFEASIBLE:
            return True
        self.model_bound_ns = graph.time_ns + model.scale.bound_ns(result.bound)
        if result.values:
            found = model.sequence(result.values)
            if simulate(graph, schedule_of(graph, found)).peak_bytes <= problem.budget_bytes:
                self.offer(polish(graph, found, problem.budget_bytes))
        return True

    def solution(self) -> Solution:
        """Return the best, or that nothing was found."""
        graph = self.problem.graph
        if self.model_bound_ns is not None and self.model_bound_ns > self.best_ns:
            # Polished, or not of the model: its bound says nothing about this schedule.
            self.model_bound_ns = None
        if self.best is None:
            return Solution(
                status=Status.UNKNOWN,
                proven_bound_ns=graph.time_ns,
                model_bound_ns=self.model_bound_ns,
                reason="no schedule in windows found in time",
                stats=self.stats,
            )
        return Solution(
            status=Status.OPTIMAL if self.best_ns <= graph.time_ns else Status.FEASIBLE,
            schedule=schedule_of(graph, self.best),
            proven_bound_ns=graph.time_ns,
            model_bound_ns=self.model_bound_ns,
            stats=self.stats,
        )


_BUILT_PER_S = 8000
"""Binaries whose rows are built in a second, cautiously."""
