"""Another order of the same ops, each run once, with a smaller peak.

Source: List scheduling by the change of the bytes in use, with noise (a GRASP, Feo and Resende
    1995), then moves of single ops to other places.

An order is legal where `verify` accepts it: each op after those that make what it reads, ops
marked `in_order` as captured, the forward phase first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy
import numpy.typing

from memplan.graph_capture.graph import Graph, Phase
from memplan.planner.schedule import Compute, Schedule

_Vector = numpy.typing.NDArray[numpy.int64]


def is_captured(graph: Graph) -> bool:
    """Whether the graph was read from a model, so that its order says more than its tensors."""
    return "graph_hash" in graph.provenance


def reordered(graph: Graph, order: Sequence[int]) -> Graph:
    """Return `graph` with its ops in another order; tensors keep their indices."""
    return replace(graph, ops=tuple(graph.ops[op] for op in order))


def lifted(order: Sequence[int], schedule: Schedule) -> Schedule:
    """Return a schedule of the reordered graph as one of the graph itself."""
    return tuple(
        Compute(order[step.op]) if isinstance(step, Compute) else step for step in schedule
    )


class Rules:
    """What an order must respect, and what it costs.

    Attributes:
        before: For each op, the ops that must run before it.
        after: For each op, the ops that must run after it.
        forward: How many ops belong to the forward phase; they come first.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        ops, sizes = graph.ops, [t.nbytes for t in graph.tensors]
        before: list[dict[int, None]] = [{} for _ in ops]
        last = None
        for i, op in enumerate(ops):
            sources = (graph.producer[t] for t in op.inputs)
            before[i].update(dict.fromkeys(s for s in sources if s is not None))
            if op.in_order:
                if last is not None:
                    before[i][last] = None
                last = i
        self.before = [tuple(earlier) for earlier in before]
        after: list[list[int]] = [[] for _ in ops]
        for i, earlier in enumerate(self.before):
            for j in earlier:
                after[j].append(i)
        self.after = [tuple(later) for later in after]
        self.is_forward = [op.phase is Phase.FORWARD for op in ops]
        self.forward = sum(self.is_forward)
        self.written = [sum(sizes[t] for t in op.outputs) for op in ops]
        self.workspace = numpy.array([op.workspace_bytes for op in ops], dtype=numpy.int64)
        self._lives(graph, sizes)

    def _lives(self, graph: Graph, sizes: Sequence[int]) -> None:
        """Note for every tensor that is made, who makes it and who reads it, flat for numpy."""
        made = [t for t, source in enumerate(graph.producer) if source is not None]
        self.source = numpy.array([graph.producer[t] for t in made], dtype=numpy.int64)
        self.nbytes = numpy.array([sizes[t] for t in made], dtype=numpy.int64)
        self.pinned = numpy.array([graph.tensors[t].pinned for t in made], dtype=bool)
        users = [(graph.producer[t], *graph.consumers[t]) for t in made]
        self.users = numpy.array([u for group in users for u in group], dtype=numpy.int64)
        lengths = numpy.array([len(group) for group in users], dtype=numpy.int64)
        self.first_user = numpy.cumsum(lengths) - lengths

    def live_bytes(self, place: _Vector) -> _Vector:
        """Return (ops,) bytes in use at each place; `place[op]` is where an op runs."""
        count = len(place)
        change = numpy.zeros(count + 1, dtype=numpy.int64)
        if len(self.source):
            ends = numpy.maximum.reduceat(place[self.users], self.first_user) + 1
            ends[self.pinned] = count
            # Exact as floats: sums stay far below 2^53.
            change += numpy.bincount(place[self.source], self.nbytes, count + 1).astype("int64")
            change -= numpy.bincount(ends, self.nbytes, count + 1).astype("int64")
        live = numpy.cumsum(change[:-1])
        live[place] += self.workspace
        return live + self.graph.given_bytes

    def peak_bytes(self, order: Sequence[int]) -> int:
        """Return the peak of an order."""
        return int(self.live_bytes(places(order)).max(initial=self.graph.given_bytes))


def places(order: Sequence[int]) -> _Vector:
    """Return (ops,) the place of each op."""
    place = numpy.empty(len(order), dtype=numpy.int64)
    place[numpy.array(order, dtype=numpy.int64)] = numpy.arange(len(order))
    return place


def listed(rules: Rules, ahead: float, noise: float, rng: random.Random) -> tuple[int, ...]:
    """Build an order op by op: next comes what adds the fewest bytes.

    Args:
        rules: Of the graph.
        ahead: How much it counts to bring inputs nearer to their last read.
        noise: Spread of a random factor of each choice.
        rng: The random choices.
    """
    graph, count = rules.graph, len(rules.graph.ops)
    sizes = [0 if t.pinned else t.nbytes for t in graph.tensors]
    left = [len(readers) for readers in graph.consumers]
    waiting = [len(earlier) for earlier in rules.before]
    added = numpy.array(
        [
            float(sum(sizes[t] for t in op.outputs if left[t]))
            - _gain(op.inputs, sizes, left, ahead)
            for op in graph.ops
        ]
    )
    ready = numpy.full(count, numpy.inf)
    for v in range(count):
        if not waiting[v]:
            ready[v] = 0.0
    later = numpy.array([0.0 if forward else numpy.inf for forward in rules.is_forward])
    order: list[int] = []
    done = [False] * count
    while len(order) < count:
        if len(order) == rules.forward:
            later[:] = 0.0
        scores = added + ready + later
        if noise:
            spread = numpy.array([1.0 + noise * rng.gauss(0.0, 1.0) for _ in range(count)])
            scores = added * spread + ready + later
        v = int(scores.argmin())
        order.append(v)
        done[v], ready[v] = True, numpy.inf
        for t in graph.ops[v].inputs:
            was = _share(sizes[t], left[t], ahead)
            left[t] -= 1
            gain = _share(sizes[t], left[t], ahead) - was if left[t] else 0.0
            for reader in graph.consumers[t]:
                if not done[reader]:
                    added[reader] -= gain
        for w in rules.after[v]:
            waiting[w] -= 1
            if not waiting[w]:
                ready[w] = 0.0
    return tuple(order)


def _share(nbytes: int, left: int, ahead: float) -> float:
    """Bytes that one of the `left` reads of a tensor counts for."""
    return nbytes * (1.0 + ahead) if left == 1 else ahead * nbytes / left


def _gain(inputs: Sequence[int], sizes: Sequence[int], left: Sequence[int], ahead: float) -> float:
    return sum(_share(sizes[t], left[t], ahead) for t in inputs)


def room_of(rules: Rules, op: int, place: Sequence[int] | _Vector) -> tuple[int, int]:
    """Return the first and last place at which `op` may run, the others where they are."""
    phase = (0, rules.forward - 1) if rules.is_forward[op] else (rules.forward, len(place) - 1)
    first = max((int(place[j]) + 1 for j in rules.before[op]), default=0)
    last = min((int(place[j]) - 1 for j in rules.after[op]), default=len(place) - 1)
    return max(first, phase[0]), min(last, phase[1])
