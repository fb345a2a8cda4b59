"""Randomised greedy replays with pruning: the default at any size.

Source: Eviction by cost / (bytes x staleness) is DTR's (Kirisame et al., "Dynamic Tensor
    Rematerialization", ICLR 2021, section 4); knowing the next use is Belady's (1966). The
    portfolio is a GRASP (Feo and Resende 1995): randomised construction, local improvement.
Deviations: Offline, so that staleness is replaced by the distance to the next use. Each replay
    has other exponents and noise; half of them lean towards what the best schedule so far
    recomputes. A schedule that comes near the best is pruned: recomputations that the budget
    does not need are taken out, the most expensive first.
Exact?: No; optimal where nothing is recomputed. First runs keep the captured order.
Complexity: One replay costs O(evictions x (tensors + evicted relatives)).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

import numpy

from memplan.graph_capture.graph import Graph
from memplan.planner.compiled import Floats
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem, Standing
from memplan.planner.prune import pruned
from memplan.planner.schedule import Schedule, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.planner.step_events import uses_of
from memplan.solvers._exchange import exchanged
from memplan.solvers._lowest import lowest
from memplan.solvers._replay import (
    CIRCLES,
    SMALL,
    Replay,
    Weights,
    Workload,
    prepare,
    recomputed_tensors,
)


@dataclass(frozen=True, slots=True)
class Greedy:
    """A portfolio of replays.

    Attributes:
        replays: How many; None for a number that falls with the size of the graph, so that the
            answer does not depend on the speed of the machine unless time runs out.
        first_found: Stop at the first schedule that fits.
        lowest: Look for the schedule with the smallest peak instead of the fastest one.
        leans: Each has one factor for each tensor's score: what has a small one is let go first.
            Half of the replays use them in turn, sharpened or blunted.
        goal_ns: Stop at a schedule that takes no longer.
        start: A schedule within the budget to be better than, in the captured order.
    """

    name: ClassVar[str] = "greedy"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "randomised replay after DTR (ICLR 2021) and Belady, pruned"

    replays: int | None = None
    first_found: bool = False
    lowest: bool = False
    leans: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    goal_ns: int = 0
    start: Schedule | None = field(default=None, repr=False)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheapest schedule of all replays."""
        if answer := settled(problem):
            return answer
        prepare()
        graph = problem.graph
        deadline = time.monotonic() + limits.time_s
        if self.lowest:
            return self._lowest(problem, limits, deadline)
        rng = numpy.random.default_rng(limits.seed)
        portfolio = _Portfolio(problem, rng, deadline, self.leans, quick=self.first_found)
        if self.start is not None:
            portfolio.begin(sequence_of(self.start))
        count = self.replays if self.replays is not None else _replays(graph)
        done, goal_ns = 0, max(self.goal_ns, graph.time_ns)
        stats: dict[str, float] = {}
        try:
            while done < count and time.monotonic() < deadline:
                if portfolio.replay(done) and limits.watch is not None:
                    limits.watch(portfolio.standing())
                done += 1
                if portfolio.best and (self.first_found or portfolio.best_ns <= goal_ns):
                    break
        except KeyboardInterrupt:
            if not portfolio.best:
                raise
            stats["interrupted"] = 1
        return portfolio.solution(done, stats)

    def _lowest(self, problem: Problem, limits: Limits, deadline: float) -> Solution:
        graph, rng = problem.graph, numpy.random.default_rng(limits.seed)
        count = self.replays if self.replays is not None else _few(graph)
        size = len(graph.tensors)
        drawn = (_drawn(rng, _noise(rng, size)) for _ in range(count - len(_FIRST)))
        found = lowest(problem, chain(_FIRST[:count], drawn), deadline)
        if not found.sequence:
            return _nothing(graph, found.replays, {"replays": found.replays})
        peak_bytes = simulate(graph, schedule_of(graph, found.sequence)).peak_bytes
        sequence = pruned(uses_of(graph), found.sequence, peak_bytes)
        return _found(graph, sequence, {"replays": found.replays})


def _replays(graph: Graph) -> int:
    reads = sum(len(op.inputs) for op in graph.ops)
    return max(32, min(5000, 20 * len(graph.ops), 2_000_000 // (1 + len(graph.ops) + reads)))


def _few(graph: Graph) -> int:
    """Return how many weights to try for the smallest peak; more seldom reach less."""
    return max(24, min(144, 14_400 // (1 + len(graph.ops))))


class _Portfolio:
    """The best sequence so far, and what to try next."""

    def __init__(
        self,
        problem: Problem,
        rng: numpy.random.Generator,
        deadline: float,
        leans: tuple[tuple[float, ...], ...],
        quick: bool,
    ) -> None:
        self.problem, self.rng, self.deadline = problem, rng, deadline
        self.quick = quick
        self.leans = [numpy.array(lean) for lean in leans]
        self.work = Workload(problem.graph)
        self.uses = uses_of(problem.graph)
        self.best: tuple[int, ...] = ()
        self.best_extra_ns: int | None = None
        self.best_raw_ns = self.best_pruned_ns = 0
        """Its extra time before pruning, and before exchanges."""
        self.best_weights = Weights()
        self.best_again = numpy.zeros(len(problem.graph.tensors), dtype=numpy.bool_)
        """(tensors,) what its schedule makes again."""
        self.pruned: set[tuple[int, ...]] = set()
        self.began, self.first_s = time.monotonic(), 0.0

    def replay(self, k: int) -> bool:
        """Try once more; `k` counts the tries. Return whether it is the best so far."""
        weights = self._leaning(k // 2) if self.leans and k % 2 == 0 else self._any(k)
        # What is far above the best, even before it was pruned, hardly comes first.
        most = float("inf") if self.best_extra_ns is None else 1.25 * self.best_raw_ns
        # Until one fits, a replay that goes in circles must not take the time of those after it.
        patient = self.best_extra_ns is None and k >= 2 * len(_FIRST)
        most_runs = (8 if patient else 3) * len(self.problem.graph.ops) + 1000
        sequence = Replay(
            self.work, self.problem.budget_bytes, weights, most, most_runs, self._deadline()
        ).run(CIRCLES if len(self.problem.graph.ops) < SMALL else None)
        if sequence is None or sequence in self.pruned:
            return False
        self.pruned.add(sequence)
        raw_ns = self._extra_ns(sequence)
        sequence = pruned(self.uses, sequence, self.problem.budget_bytes)
        pruned_ns = self._extra_ns(sequence)
        if self.best_extra_ns is not None and pruned_ns > _WORTH * self.best_pruned_ns:
            return False
        if not self.quick:
            sequence = exchanged(self.uses, sequence, self.problem.budget_bytes, self._deadline())
        extra_ns = self._extra_ns(sequence)
        if self.best_extra_ns is not None and extra_ns >= self.best_extra_ns:
            return False
        if self.best_extra_ns is None:
            self.first_s = time.monotonic() - self.began
        self.best_weights = weights
        self.best_raw_ns, self.best_pruned_ns = raw_ns, pruned_ns
        self._keep(sequence)
        return True

    def begin(self, sequence: tuple[int, ...]) -> None:
        """Take `sequence` as the best so far."""
        self.best_pruned_ns = self._extra_ns(sequence)
        self.best_raw_ns = int(_UNPRUNED * self.best_pruned_ns)
        self._keep(sequence)

    def _keep(self, sequence: tuple[int, ...]) -> None:
        self.best, self.best_extra_ns = sequence, self._extra_ns(sequence)
        self.best_again = recomputed_tensors(self.work, sequence)

    def _extra_ns(self, sequence: Sequence[int]) -> int:
        return int(self.uses.time_ns[list(sequence)].sum()) - self.problem.graph.time_ns

    def standing(self) -> Standing:
        """Return how far the search is."""
        step_ns = self.problem.graph.time_ns
        best_ns = None if self.best_extra_ns is None else step_ns + self.best_extra_ns
        return Standing(stage="greedy", step_ns=step_ns, best_ns=best_ns, bound_ns=step_ns)

    def _deadline(self) -> float:
        """Return when the next replay has to end: after half of the time left, or a quarter."""
        now = time.monotonic()
        return now + (self.deadline - now) / (2 if self.best_extra_ns is None else 4)

    @property
    def best_ns(self) -> float:
        """Time of the best schedule; infinite where there is none."""
        if self.best_extra_ns is None:
            return float("inf")
        return self.problem.graph.time_ns + self.best_extra_ns

    def _leaning(self, k: int) -> Weights:
        """Return weights that follow one of `leans`, the first times plainly, then with noise."""
        turn, lean = k // len(self.leans), self.leans[k % len(self.leans)]
        if turn < len(_SHARPNESS):
            return Weights(bias=lean ** _SHARPNESS[turn])
        rng = self.rng
        noise = rng.lognormal(0.0, rng.choice((0.1, 0.3, 0.6)), len(lean))
        return Weights(
            cost=rng.uniform(0.5, 1.5),
            nbytes=rng.uniform(0.5, 1.5),
            distance=rng.choice((0.5, 1.0, 1.0, 2.0)),
            dead_first=rng.random() < 0.7,
            newest_first=rng.random() < 0.5,
            bias=lean ** rng.uniform(0.2, 2.0) * noise,
        )

    def _any(self, k: int) -> Weights:
        """Return one of the first weights, or draw some."""
        at = k // 2 if self.leans else k
        return _FIRST[at] if at < len(_FIRST) else self._weights()

    def _weights(self) -> Weights:
        """Draw the next weights: afresh, or near the best ones and leaning to its plan."""
        rng, best = self.rng, self.best_weights
        bias = _noise(rng, len(self.best_again))
        if not self.best or rng.random() >= 0.7:
            return _drawn(rng, bias)
        swapped = rng.random(len(bias)) < rng.choice((0.0, 0.05, 0.15))
        bias[self.best_again != swapped] *= rng.choice((0.3, 0.1, 0.03, 0.01))
        return Weights(
            cost=best.cost * rng.uniform(0.8, 1.25),
            nbytes=best.nbytes * rng.uniform(0.8, 1.25),
            distance=best.distance * rng.uniform(0.8, 1.25),
            dead_first=best.dead_first,
            newest_first=best.newest_first,
            bias=bias,
        )

    def solution(self, replays: int, more: Mapping[str, float]) -> Solution:
        """Return the best, or that nothing was found."""
        graph = self.problem.graph
        stats = {"replays": replays, "pruned": len(self.pruned), **more}
        if self.best_extra_ns is None:
            return _nothing(graph, replays, stats)
        return _found(graph, self.best, stats | {"first_s": self.first_s})


def _nothing(graph: Graph, replays: int, stats: Mapping[str, float]) -> Solution:
    reason = f"none of {replays} replays fitted"
    return Solution(
        status=Status.UNKNOWN, proven_bound_ns=graph.time_ns, reason=reason, stats=stats
    )


def _found(graph: Graph, sequence: Sequence[int], stats: Mapping[str, float]) -> Solution:
    schedule = schedule_of(graph, sequence)
    plain = simulate(graph, schedule).time_ns == graph.time_ns
    return Solution(
        status=Status.OPTIMAL if plain else Status.FEASIBLE,
        schedule=schedule,
        proven_bound_ns=graph.time_ns,
        stats=stats,
    )


def _noise(rng: numpy.random.Generator, tensors: int) -> Floats:
    """Draw a factor for each tensor."""
    return rng.lognormal(0.0, rng.choice((0.0, 0.1, 0.3, 0.6)), tensors)


def _drawn(rng: numpy.random.Generator, bias: Floats) -> Weights:
    """Draw weights that owe nothing to what was found so far."""
    return Weights(
        cost=rng.uniform(0.2, 1.6),
        nbytes=rng.uniform(0.2, 1.6),
        distance=rng.choice((0.0, 0.5, 1.0, 1.0, 2.0, 4.0)),
        dead_first=rng.random() < 0.85,
        newest_first=rng.random() < 0.5,
        bias=bias,
    )


_FIRST = (
    Weights(),
    Weights(newest_first=True),
    Weights(dead_first=False),
    Weights(distance=0.0),
    Weights(cost=0.5, distance=0.5),
)
"""What is tried first: the plain rule and its variants."""

_WORTH = 1.02
"""Exchanges may make the best of what takes no longer than this, as a share of the best's extra
time before its own exchanges."""

_UNPRUNED = 1.2
"""What a schedule from elsewhere is taken to have been before pruning."""

_SHARPNESS = (1.0, 0.5, 2.0, 0.25)
"""Exponents of a lean in the first replays that follow it."""
