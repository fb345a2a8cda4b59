"""Recompute what is cheap between what is heavy, and move what is heavy when room is needed.

Source: Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, "SuperNeurons: Dynamic GPU Memory Management for
    Training Deep Neural Networks" (PPoPP 2018). Cost-aware recomputation: outputs of heavy layers
    are checkpoints; a segment between two of them is recomputed once and kept (speed-centric)
    where that fits l_peak, the largest need of a single layer, else for each use anew
    (memory-centric). Tensor cache: checkpoints go to the host, least recently used first, when
    room is needed, and come back one heavy layer ahead.
Deviations: Heavy are convolutions, matrix products and attention by their target; in graphs
    without targets, ops whose time is above the mean. What has to run again is found by
    dependency, not by layer. All three modes are tried: as published, all speed-centric and all
    memory-centric; the cache only where none of them fits, on the speed-centric one. Without
    somewhere to move to it is the recomputation alone. Convolution workspaces stay as they are.
Exact?: No. It looks at the budget only to evict; OPTIMAL only where nothing is recomputed.
Complexity: O(ops + reads + runs) a mode; O(transfers x ops between) for the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from memplan.graph_capture.graph import Graph
from memplan.planner.cheapest import cheapest_within
from memplan.planner.checkpoints import forward_end
from memplan.planner.limits import settled
from memplan.planner.moves import Timing
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.partitions._min_cut import is_compute_intensive, lost_without
from memplan.solvers.swaps._on_demand import evict_on_demand, least_recent
from memplan.solvers.swaps._swap_rules import Proposal, kept_but, solve_by

_MOST_RUNS = 50
"""Runs for each op, on average, after which a memory-centric plan is given up."""


@dataclass(frozen=True, slots=True)
class Superneurons:
    """Checkpoints by the kind of op, segments by their bytes, then an LRU cache of checkpoints."""

    name: ClassVar[str] = "superneurons"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = (
        "SuperNeurons (PPoPP 2018): light ops again, heavy outputs in an LRU cache"
    )
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheapest of the three modes that fits, or one with moves where none does."""
        if answer := settled(problem):
            return answer
        recomputed = cheapest_within(problem, self._plans(problem.graph))
        if recomputed.schedule is not None or not problem.tiers:
            return recomputed
        return solve_by(problem, (self._cached(problem),))

    def _cached(self, problem: Problem) -> Proposal:
        """Return the step in which light ops run again and checkpoints go on demand."""
        graph = problem.graph
        heavy = heavy_ops(graph, forward_end(graph))
        light = frozenset(
            t
            for i, op in enumerate(graph.ops[: forward_end(graph)])
            if i not in heavy and op.recomputable
            for t in op.outputs
        )
        sequence, _ = kept_but(graph, light, frozenset())
        moves = evict_on_demand(problem, least_recent, early=True, sequence=sequence)
        return Proposal(moves=moves, sequence=sequence, timing=Timing(ahead=1, heavy=heavy))

    def _plans(self, graph: Graph) -> Iterator[tuple[int, ...]]:
        end = forward_end(graph)
        heavy = heavy_ops(graph, end)
        kept = {t for i in heavy for t in graph.ops[i].outputs}
        lost = lost_without(graph, end, kept)
        segment = segments(graph, end, heavy)
        limit_bytes = largest_need(graph)
        total_bytes = [0] * (max(segment, default=0) + 1)
        for i in range(end):
            total_bytes[segment[i]] += sum(
                graph.tensors[t].nbytes for t in graph.ops[i].outputs if lost[t]
            )
        published = [nbytes <= limit_bytes for nbytes in total_bytes]
        for keep in (published, [True] * len(published), [False] * len(published)):
            sequence = _sequence(graph, end, lost, [keep[s] for s in segment])
            if sequence is not None:
                yield sequence


def heavy_ops(graph: Graph, end: int) -> frozenset[int]:
    """Return the forward ops whose outputs are checkpoints."""
    named = {i for i in range(end) if is_compute_intensive(graph.ops[i].target)}
    if not named:
        mean_ns = sum(op.time_ns for op in graph.ops[:end]) / max(1, end)
        named = {i for i in range(end) if graph.ops[i].time_ns > mean_ns}
    return frozenset(named)


def segments(graph: Graph, end: int, heavy: frozenset[int]) -> list[int]:
    """Return for each forward op the number of heavy ops up to it."""
    found, number = [], 0
    for i in range(end):
        number += i in heavy
        found.append(number)
    return found


def largest_need(graph: Graph) -> int:
    """Return l_peak: the most bytes that a single op reads, writes and works in."""
    tensors = graph.tensors
    return max(
        (
            sum(tensors[t].nbytes for t in (*op.inputs, *op.outputs)) + op.workspace_bytes
            for op in graph.ops
        ),
        default=0,
    )


def _sequence(
    graph: Graph, end: int, lost: list[bool], keep: list[bool]
) -> tuple[int, ...] | None:
    """Return the ops to run; `keep` says of a forward op whether its second run is the last."""
    order = list(range(end))
    there = [not gone for gone in lost]
    most = _MOST_RUNS * len(graph.ops)
    for v in range(end, len(graph.ops)):
        again = _needed(graph, v, there)
        order += [*again, v]
        for i in again:
            if keep[i]:
                for t in graph.ops[i].outputs:
                    there[t] = True
        if len(order) > most:
            return None
    return tuple(order)


def _needed(graph: Graph, v: int, there: list[bool]) -> list[int]:
    """Return the ops that make the missing inputs of op `v`, in order."""
    needed: set[int] = set()
    stack = [t for t in graph.ops[v].inputs if not there[t]]
    while stack:
        source = graph.producer[stack.pop()]
        assert source is not None
        if source not in needed:
            needed.add(source)
            stack += [t for t in graph.ops[source].inputs if not there[t]]
    return sorted(needed)
