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
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.prune import pruned
from memplan.planner.schedule import Schedule, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.planner.step_events import uses_of
from memplan.solvers._lowest import lowest
from memplan.solvers._portfolio import FIRST, Portfolio, drawn, noise
from memplan.solvers._replay import (
    prepare,
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
        portfolio = Portfolio(problem, rng, deadline, self.leans, quick=self.first_found)
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
        stats |= {"replays": done, "pruned": len(portfolio.pruned), "starts": portfolio.starts}
        if portfolio.best is None:
            return _nothing(graph, done, stats)
        return _found(graph, portfolio.best.sequence, stats | {"first_s": portfolio.first_s})

    def _lowest(self, problem: Problem, limits: Limits, deadline: float) -> Solution:
        graph, rng = problem.graph, numpy.random.default_rng(limits.seed)
        count = self.replays if self.replays is not None else _few(graph)
        size = len(graph.tensors)
        others = (drawn(rng, noise(rng, size)) for _ in range(count - len(FIRST)))
        found = lowest(problem, chain(FIRST[:count], others), deadline)
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
