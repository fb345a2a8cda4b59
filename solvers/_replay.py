"""One greedy run through a graph under a budget: what to evict when room is needed.

The graph is walked in its order. Before an op runs, its missing inputs are recomputed, and
theirs; to make room, the tensor with the least score is evicted. The next use of every tensor in
the order is known, as in Belady's rule; what an eviction costs is the time of everything that
would have to run again, as in DTR (Kirisame et al., ICLR 2021).

The score of all tensors is kept in one vector, and priced lazily. What an eviction makes more
expensive (tensors that are made from the evicted one) keeps its old score as a lower bound,
and is priced again only if that is the least of all. A recomputation makes its op's time cheaper
whatever depended on it, so that those scores are corrected without a search.

The walk itself is compiled: `_replay_kernel`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy
import numpy.typing

from memplan.graph_capture.graph import Graph
from memplan.planner import prune
from memplan.planner.compiled import Flags, Floats, integers, run
from memplan.planner.step_events import uses_of
from memplan.solvers._exchange import exchanged
from memplan.solvers._replay_kernel import ENDED, PAUSED, walk
from memplan.solvers._replay_state import (
    COUNTS,
    DUE,
    FUEL,
    NEVER,
    NEXT_USE,
    OP_ROWS,
    PRICE_ROWS,
    PRODUCER,
    RAN,
    RESIDENT,
    SIZE,
    TENSOR_ROWS,
    USED,
    Rule,
    State,
    Work,
)

_DEAD = 1e-12
"""Factor for what no later op reads; it goes first."""

SMALL, CIRCLES = 150, 4
"""On graphs with fewer than `SMALL` ops, no run that needs more `CIRCLES` was seen to end."""
_FEW_RUNS = 30
"""Recomputations for one op that prove nothing even early in the graph."""
_FUEL = 3_000_000
"""Elements looked at between two looks at the clock; some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """The score of a tensor: cost^a / (bytes^b (ops until its next use + 1)^c).

    Attributes:
        dead_first: Whether a tensor that no later op reads goes before any other; else it is
            scored as one that is read after the last op.
        newest_first: Whether missing inputs are made from the last to the first.
        bias: (tensors,) one more factor for each; None for none.
    """

    cost: float = 1.0
    nbytes: float = 1.0
    distance: float = 1.0
    dead_first: bool = True
    newest_first: bool = False
    bias: Floats | None = field(default=None, repr=False)


class Workload:
    """A graph, as the replay needs it; built once for many replays.

    Only freeable tensors that have bytes and readers can be evicted; the others are always
    there once made, or never matter again.

    Args:
        graph: The step.
        price_ns: For tensors that have a second way to be made, what that takes. It becomes one
            more op, which reads nothing, behind those of the graph.

    Attributes:
        reads: For each op beyond those of the graph, the tensor that it makes.
    """

    def __init__(self, graph: Graph, price_ns: Mapping[int, int] | None = None) -> None:
        self.graph = graph
        self.reads: dict[int, int] = {}
        tensors, ops = graph.tensors, graph.ops
        sizes = [t.nbytes for t in tensors]
        movable = [
            not t.pinned and t.nbytes > 0 and bool(graph.consumers[i])
            for i, t in enumerate(tensors)
        ]
        producer = [-1 if p is None else p for p in graph.producer]
        time_ns = [op.time_ns for op in ops]
        recomputable = [op.recomputable for op in ops]
        inputs = [[t for t in op.inputs if movable[t]] for op in ops]
        outputs = [[t for t in op.outputs if movable[t]] for op in ops]
        running_bytes = [sum(sizes[t] for t in op.outputs) + op.workspace_bytes for op in ops]
        pinned_bytes = [sum(sizes[t] for t in op.outputs if tensors[t].pinned) for op in ops]
        for t, price in sorted((price_ns or {}).items()):
            self.reads[len(time_ns)] = t
            producer[t] = len(time_ns)
            time_ns.append(price)
            recomputable.append(True)
            inputs.append([])
            outputs.append([t])
            running_bytes.append(sizes[t])
            pinned_bytes.append(0)
        # Where nobody reads it, the next use is behind the last op.
        self.first_use = integers(r[0] if r else len(ops) for r in graph.consumers)
        self.movable = numpy.array(movable, dtype=numpy.bool_)
        rows = (*inputs, *outputs, *graph.consumers)
        self.work = Work(
            tensors=numpy.array((sizes, producer), dtype=numpy.int64),
            ops=numpy.array((time_ns, recomputable, running_bytes, pinned_bytes), numpy.int64),
            starts=numpy.cumsum([0, *map(len, rows)], dtype=numpy.int64),
            items=integers(item for row in rows for item in row),
        )


class Replay:
    """One run through a graph; `run` returns the sequence of ops, or None if it got stuck.

    Args:
        workload: The graph.
        budget_bytes: What may be in use at once.
        weights: What is evicted first.
        most_extra_ns: A run that costs more is given up,
        most_runs: and one of more ops.
        deadline: When to give up, by `time.monotonic`.
    """

    def __init__(
        self,
        workload: Workload,
        budget_bytes: int,
        weights: Weights,
        most_extra_ns: float,
        most_runs: int,
        deadline: float,
    ) -> None:
        self.workload, self.weights = workload, weights
        self.budget_bytes = budget_bytes
        self.most_extra_ns, self.most_runs, self.deadline = most_extra_ns, most_runs, deadline

    def run(self, circles: int | None = None) -> tuple[int, ...] | None:
        """Walk the whole graph.

        Args:
            circles: For one op at most so many times as many recomputations as there are ops
                before it; most runs that need more never end. None for any number.
        """
        work, state = self.workload.work, _state(self.workload, self.most_runs)
        rule, walked = self.rule(circles), len(self.workload.graph.ops)
        outcome = PAUSED
        while outcome == PAUSED:
            if time.monotonic() > self.deadline:
                return None
            state.counts[FUEL] = _FUEL
            outcome = run(walk, work, rule, state, walked)
        return tuple(state.order[: state.counts[RAN]].tolist()) if outcome == ENDED else None

    def rule(self, circles: int | None) -> Rule:
        """Return the limits and weights as the walk takes them."""
        weights, work = self.weights, self.workload.work
        divisor = numpy.maximum(1, work.tensors[SIZE]).astype(numpy.float64) ** weights.nbytes
        if weights.bias is not None:
            divisor /= weights.bias
        return Rule(
            divisor=divisor,
            nearness=_nearness(work.ops.shape[1], weights),
            cost=float(weights.cost),
            newest_first=weights.newest_first,
            budget_bytes=self.budget_bytes,
            most_extra_ns=float(self.most_extra_ns),
            most_runs=self.most_runs,
            circles=-1 if circles is None else circles,
            few_runs=_FEW_RUNS,
        )


@cache
def prepare() -> None:
    """Compile all loops where this installation never did, so that no time limit pays for it.

    It takes some seconds, once: the code is kept on disk.
    """
    prune.prepare()
    nothing = Graph(ops=(), tensors=())
    exchanged(uses_of(nothing), (), 0, NEVER)
    workload = Workload(nothing)
    replay = Replay(workload, 0, Weights(), 0.0, 0, NEVER)
    walk(workload.work, replay.rule(None), _state(workload, 0), 0)


def _state(workload: Workload, most_runs: int) -> State:
    """Return the state before the first op."""
    ops, tensors = workload.work.ops.shape[1], workload.work.tensors.shape[1]
    state = State(
        counts=numpy.zeros(COUNTS, dtype=numpy.int64),
        tensors=numpy.zeros((TENSOR_ROWS, tensors), dtype=numpy.int64),
        prices=numpy.full((PRICE_ROWS, tensors), NEVER),
        ops=numpy.zeros((OP_ROWS, ops + 2), dtype=numpy.int64),
        # What is pending when the most is reached may still run.
        order=numpy.empty(most_runs + 2 * ops + 2, dtype=numpy.int64),
        stack=numpy.empty(tensors + ops + 2, dtype=numpy.int64),
    )
    state.counts[USED] = workload.graph.given_bytes
    state.tensors[RESIDENT] = ~workload.movable
    state.tensors[DUE] = 2 * ops
    state.tensors[NEXT_USE] = workload.first_use
    return state


def _nearness(ops: int, weights: Weights) -> Floats:
    """By (op of the next use - op now): the factor of the score; dead tensors are from `ops` on.

    Returns:
        (2 ops + 1,) factors.
    """
    factors = (numpy.arange(1, 2 * ops + 2, dtype=numpy.float64)) ** -weights.distance
    if weights.dead_first:
        factors[ops:] *= _DEAD
    return factors


def recomputed_tensors(workload: Workload, sequence: Sequence[int]) -> Flags:
    """Return (tensors,) whether it is a movable output of an op that `sequence` runs again."""
    runs = numpy.bincount(sequence, minlength=workload.work.ops.shape[1])
    producer = workload.work.tensors[PRODUCER]
    again: Flags = workload.movable & (producer >= 0) & (runs[producer] > 1)
    return again
