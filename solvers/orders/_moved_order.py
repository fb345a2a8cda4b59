"""Orders with a small peak: listed, then improved by moves of single ops to other places."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import numpy
import numpy.typing

from memplan.graph_capture.graph import Graph
from memplan.solvers.orders._order import Rules, listed, places, room_of

_SHARPNESS = 8.0
"""Exponent of the bytes in use: among equal peaks, few steps near the peak are better."""
_NEAR_PEAK = 8
"""So many places beside the peak are near it."""

_AHEAD = (0.0, 0.3, 0.6, 1.0, 1.5)
_NOISE = (0.0, 0.05, 0.2, 0.5)
"""Of the lists that are tried first, see `listed`."""

_Vector = numpy.typing.NDArray[numpy.int64]


def lowest_order(graph: Graph, goal_bytes: int, deadline: float, seed: int) -> tuple[int, ...]:
    """Return the order with the smallest peak that was found; the captured one if it is best.

    Args:
        graph: The step.
        goal_bytes: Stop at an order whose peak is at most this.
        deadline: When to end, by `time.monotonic`. Larger graphs get fewer tries, so that
            it seldom cuts in and the answer does not depend on the machine.
        seed: Of the random choices.
    """
    rng, rules = random.Random(seed), Rules(graph)
    found = [(rules.peak_bytes(order), order) for order in (tuple(range(len(graph.ops))),)]
    for k in range(max(8, min(60, 20_000 // (1 + len(graph.ops))))):
        if min(found)[0] <= goal_bytes or time.monotonic() > deadline:
            break
        ahead, noise = _AHEAD[k % len(_AHEAD)], _NOISE[k // len(_AHEAD) % len(_NOISE)]
        order = listed(rules, ahead, noise, rng)
        found.append((rules.peak_bytes(order), order))
    best: list[tuple[int, tuple[int, ...]]] = []
    for peak_bytes, order in sorted(found)[:3]:
        if best and (min(best)[0] <= goal_bytes or time.monotonic() > deadline):
            break
        if peak_bytes > goal_bytes:
            order = moved(rules, order, goal_bytes, deadline, rng)
        best.append((rules.peak_bytes(order), order))
    return min(best)[1]


def moved(
    rules: Rules, order: Sequence[int], goal_bytes: int, deadline: float, rng: random.Random
) -> tuple[int, ...]:
    """Move single ops, mostly near the peak, as long as that makes nothing worse.

    Args:
        rules: Of the graph.
        order: The order to begin with.
        goal_bytes: Stop at a peak of at most this.
        deadline: When to end, by `time.monotonic`; else after many moves without a gain.
        rng: The random choices.
    """
    walk, count, stale = Walk(rules, order), len(order), 0
    while walk.peak_bytes > goal_bytes and stale < 40 * count + 200:
        stale += 1
        if stale % 64 == 0 and time.monotonic() >= deadline:
            break
        at = rng.randrange(count)
        if rng.random() < 0.5:
            at = walk.peak_place + rng.randrange(-_NEAR_PEAK, _NEAR_PEAK + 1)
            at = min(count - 1, max(0, at))
        first, last = walk.room(at)
        to = rng.randint(first, last)
        if to != at and walk.try_move(at, to):
            stale = 0
    return tuple(walk.sequence)


class Walk:
    """An order, and the bytes in use at each of its places.

    Attributes:
        sequence: The order.
        place: Where each op runs.
        live: (ops,) bytes in use at each place.
    """

    def __init__(self, rules: Rules, order: Sequence[int]) -> None:
        graph = rules.graph
        self.rules, self.sequence = rules, list(order)
        vector = places(order)
        self.place: list[int] = vector.tolist()
        self.live: _Vector = rules.live_bytes(vector)
        self.peak_bytes = int(self.live.max())
        self.peak_place = int(self.live.argmax())
        self.scale = float(max(1, self.peak_bytes))
        self.weights = (self.live / self.scale) ** _SHARPNESS
        self.weight = float(self.weights.sum())
        self.sizes = [t.nbytes for t in graph.tensors]
        self.stays = [t.pinned for t in graph.tensors]
        self.users = [
            () if source is None else (source, *graph.consumers[t])
            for t, source in enumerate(graph.producer)
        ]
        self.inputs = [
            tuple(t for t in op.inputs if self.users[t] and not self.stays[t]) for op in graph.ops
        ]
        self.read_bytes = [
            sum(self.sizes[t] for t in op.outputs if self.stays[t] or graph.consumers[t])
            for op in graph.ops
        ]
        """Of the outputs that outlive their op."""
        self.own_bytes = [rules.written[i] + op.workspace_bytes for i, op in enumerate(graph.ops)]

    def room(self, at: int) -> tuple[int, int]:
        """Return the first and last place to which the op at place `at` may move."""
        return room_of(self.rules, self.sequence[at], self.place)

    def try_move(self, at: int, to: int) -> bool:
        """Move an op if nothing gets worse; return whether something gets better."""
        low, high = min(at, to), max(at, to) + 1
        part = self._live_between(at, to)
        weights = (part / self.scale) ** _SHARPNESS
        weight = self.weight + float(weights.sum() - self.weights[low:high].sum())
        peak_bytes = int(part.max())
        if peak_bytes > self.peak_bytes:
            return False
        if low <= self.peak_place < high:
            outside = (self.live[:low], self.live[high:])
            peak_bytes = max(peak_bytes, *(int(rest.max(initial=0)) for rest in outside))
        else:
            peak_bytes = self.peak_bytes
        if (peak_bytes, weight) > (self.peak_bytes, self.weight):
            return False
        better = (peak_bytes, weight) < (self.peak_bytes, self.weight * (1 - 1e-4))
        self.sequence.insert(to, self.sequence.pop(at))
        for p in range(low, high):
            self.place[self.sequence[p]] = p
        self.live[low:high], self.weights[low:high] = part, weights
        self.peak_bytes, self.weight = peak_bytes, weight
        self.peak_place = int(self.live.argmax())
        return better

    def _live_between(self, at: int, to: int) -> _Vector:
        """Return the bytes in use from the lower to the higher place once the op has moved."""
        op = self.sequence[at]
        if to > at:
            passed = self.live[at + 1 : to + 1] - self.read_bytes[op]
            self._hold(passed, op, at + 1, 1)
            return numpy.append(passed, self._own(op, self.sequence[to], int(passed[-1])))
        passed = self.live[to:at] + self.read_bytes[op]
        self._hold(passed, op, to, -1)
        before = self.rules.graph.given_bytes
        if to:
            before = int(self.live[to - 1])
        own = self._own(op, self.sequence[to - 1] if to else None, before)
        return numpy.append(numpy.int64(own), passed)

    def _hold(self, passed: _Vector, op: int, begin: int, sign: int) -> None:
        """Correct for the inputs of `op` that are there for longer, or shorter, because of it.

        Args:
            passed: The bytes in use at the places from `begin` on.
            op: What moves past them.
            begin: The first of these places, before the move.
            sign: 1 where the op moves later, -1 where it moves earlier.
        """
        place = self.place
        for t in self.inputs[op]:
            last = max(place[u] for u in self.users[t] if u != op)
            if last < begin + len(passed) - 1:
                passed[max(0, last + 1 - begin) :] += sign * self.sizes[t]

    def _own(self, op: int, before: int | None, before_bytes: int) -> int:
        """Return the bytes in use at `op` where it runs right after `before`.

        Args:
            op: The op that moves.
            before: The op before it; None where it comes first.
            before_bytes: What is in use there, `op` having moved.
        """
        if before is None:
            return before_bytes + self.own_bytes[op]
        place = self.place
        left = before_bytes - self.own_bytes[before] + self.read_bytes[before]
        for t in self.inputs[before]:
            users = self.users[t]
            if op not in users and place[before] == max(place[u] for u in users):
                left -= self.sizes[t]
        return left + self.own_bytes[op]
