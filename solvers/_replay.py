"""One greedy run through a graph under a budget: what to evict when room is needed.

The graph is walked in its order. Before an op runs, its missing inputs are recomputed, and
theirs; to make room, the tensor with the least score is evicted. The next use of every tensor in
the order is known, as in Belady's rule; what an eviction costs is the time of everything that
would have to run again, as in DTR (Kirisame et al., ICLR 2021).

The score of all tensors is kept in one vector, and priced lazily. What an eviction makes more
expensive (tensors that are made from the evicted one) keeps its old score as a lower bound,
and is priced again only if that is the least of all. A recomputation makes its op's time cheaper
whatever depended on it, so that those scores are corrected without a search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import numpy.typing

from memplan.graph_capture.graph import Graph

_NEVER = math.inf
_LAST_RESORT = 1e290
"""Factor for what can be evicted but whose loss makes others impossible to evict."""
_DEAD = 1e-12
"""Factor for what no later op reads; it goes first."""

SMALL, CIRCLES = 150, 4
"""On graphs with fewer than `SMALL` ops, no run that needs more `CIRCLES` was seen to end."""
_FEW_RUNS = 30
"""Recomputations for one op that prove nothing even early in the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The score of a tensor: cost^a / (bytes^b (ops until its next use + 1)^c).

    Attributes:
        dead_first: Whether a tensor that no later op reads goes before any other; else it is
            scored as one that is read after the last op.
        newest_first: Whether missing inputs are made from the last to the first.
        bias: One more factor for each tensor.
    """

    cost: float = 1.0
    nbytes: float = 1.0
    distance: float = 1.0
    dead_first: bool = True
    newest_first: bool = False
    bias: tuple[float, ...] = ()


class Workload:
    """A graph, as the replay needs it; built once for many replays.

    Only freeable tensors that have bytes and readers can be evicted; the others are always
    there once made, or never matter again.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        tensors, ops = graph.tensors, graph.ops
        self.sizes = [t.nbytes for t in tensors]
        movable = [
            not t.pinned and t.nbytes > 0 and bool(graph.consumers[i])
            for i, t in enumerate(tensors)
        ]
        self.movable = movable
        self.producer = [-1 if p is None else p for p in graph.producer]
        self.consumers = graph.consumers
        self.time_ns = [op.time_ns for op in ops]
        self.recomputable = [op.recomputable for op in ops]
        self.inputs = [tuple(t for t in op.inputs if movable[t]) for op in ops]
        self.outputs = [tuple(t for t in op.outputs if movable[t]) for op in ops]
        self.running_bytes = [
            sum(self.sizes[t] for t in op.outputs) + op.workspace_bytes for op in ops
        ]
        """What an op takes while it runs, beside what is resident."""
        self.pinned_bytes = [
            sum(self.sizes[t] for t in op.outputs if tensors[t].pinned) for op in ops
        ]
        first_use = [len(ops)] * len(tensors)
        for t, readers in enumerate(graph.consumers):
            if readers:
                first_use[t] = readers[0]
        self.first_use = first_use


class Replay:
    """The state of one run; `run` returns the sequence of ops, or None if it got stuck."""

    def __init__(
        self,
        work: Workload,
        budget_bytes: int,
        weights: Weights,
        most_extra_ns: float,
        most_runs: int,
        deadline: float,
    ) -> None:
        self.work, self.weights = work, weights
        self.budget_bytes = budget_bytes
        self.most_extra_ns, self.most_runs, self.deadline = most_extra_ns, most_runs, deadline
        self.most_runs_now = most_runs
        """How long `order` may become before the current op has run for the first time."""
        ops, tensors = len(work.time_ns), len(work.sizes)
        self.now = 0
        self.order: list[int] = []
        self.extra_ns = 0
        self.used_bytes = work.graph.given_bytes
        self.resident = [not movable for movable in work.movable]
        self.locks = [0] * tensors
        # Of resident tensors: a lower bound on the cost of making them again, whether it may be
        # less than the true cost, and their value by the weights, before the distance.
        self.least_ns = [_NEVER] * tensors
        self.stale = [False] * tensors
        self.value = [_NEVER] * tensors
        self.next_use = list(work.first_use)
        self.use_cursor = [0] * tensors
        # The vectors that a choice looks at. `score` is infinite where a tensor may not go.
        self.score = numpy.full(tensors, _NEVER)
        self.due = numpy.full(tensors, 2 * ops, dtype=numpy.int64)
        self.nearness = _nearness(ops, weights)
        self.divisor = [max(1, size) ** weights.nbytes for size in work.sizes]
        if weights.bias:
            self.divisor = [d / f for d, f in zip(self.divisor, weights.bias, strict=True)]

    def run(self, circles: int | None = None) -> tuple[int, ...] | None:
        """Walk the whole graph.

        Args:
            circles: For one op at most so many times as many recomputations as there are ops
                before it; most runs that need more never end. None for any number.
        """
        for op in range(self._walked_ops):
            self.now = op
            if circles is not None:
                most_runs = len(self.order) + circles * op + _FEW_RUNS
                self.most_runs_now = min(self.most_runs, most_runs)
            if not self._compute(op):
                return None
            for t in self.work.inputs[op]:
                self._pass_use(t)
        return tuple(self.order)

    @property
    def _walked_ops(self) -> int:
        """How many of the first ops are walked; those behind them run on demand."""
        return len(self.work.time_ns)

    def _compute(self, op: int) -> bool:
        """Run `op` for the first time, with whatever has to be made before."""
        resident, inputs = self.resident, self.work.inputs
        if all(resident[t] for t in inputs[op]):
            return self._run(op, first=True)
        pending = [op]
        self._lock(inputs[op])
        while pending:
            top = pending[-1]
            missing = [t for t in inputs[top] if not resident[t]]
            if missing:
                needed = missing[-1 if self.weights.newest_first else 0]
                source = self.work.producer[needed]
                if not self.work.recomputable[source] or self._is_hopeless():
                    return False
                pending.append(source)
                self._lock(inputs[source])
                continue
            if not self._run(top, first=len(pending) == 1):
                return False
            pending.pop()
            self._unlock(inputs[top])
        return True

    def _is_hopeless(self) -> bool:
        """Whether this run costs too much already, goes in circles, or time is over."""
        if self.extra_ns > self.most_extra_ns or len(self.order) > self.most_runs_now:
            return True
        return time.monotonic() > self.deadline

    def _run(self, op: int, first: bool) -> bool:
        """Run one op whose inputs are there; False where there is no room for it."""
        work, resident = self.work, self.resident
        made = [t for t in work.outputs[op] if not resident[t]]
        need = work.running_bytes[op]
        if not first:
            # A second run replaces outputs that are still there: they go before it.
            need -= sum(work.sizes[t] for t in work.outputs[op] if resident[t])
        if self.used_bytes + need > self.budget_bytes:
            held = work.inputs[op] if first else (*work.inputs[op], *work.outputs[op])
            self._lock(held)
            enough = self._make_room(need, held)
            self._unlock(held)
            if not enough:
                return False
        self.order.append(op)
        if first:
            self.used_bytes += work.pinned_bytes[op]
        else:
            self.extra_ns += work.time_ns[op]
            self._cheapen_below(made, work.time_ns[op])
        never = 2 * len(work.time_ns)
        for t in made:
            resident[t] = True
            self.used_bytes += work.sizes[t]
            due = self.next_use[t]
            self.due[t] = due if 2 * due < never else never
            # All inputs are there: making it again takes this op alone.
            self._set_least(t, work.time_ns[op] if work.recomputable[op] else _NEVER, False)
        return True

    def _pass_use(self, t: int) -> None:
        """Note that the op at `now`, which reads `t`, has run."""
        readers = self.work.consumers[t]
        cursor = self.use_cursor[t] + 1
        self.use_cursor[t] = cursor
        if cursor < len(readers):
            self.next_use[t] = self.due[t] = readers[cursor]
            return
        ops = len(self.work.time_ns)
        self.next_use[t], self.due[t] = ops, 2 * ops
        if self.resident[t] and self.value[t] == _NEVER:
            # What cannot be made again may go once nobody reads it.
            self._set_least(t, 0.0, True)

    def _lock(self, tensors: Sequence[int]) -> None:
        for t in tensors:
            self.locks[t] += 1
            self.score[t] = _NEVER

    def _unlock(self, tensors: Sequence[int]) -> None:
        for t in tensors:
            self.locks[t] -= 1
            if not self.locks[t] and self.resident[t]:
                self.score[t] = self.value[t]

    def _make_room(self, need: int, held: Sequence[int]) -> bool:
        """Evict until `need` bytes fit beside what is resident; nothing of `held`."""
        gone: list[int] = []
        rechecked = False
        while self.used_bytes + need > self.budget_bytes:
            if time.monotonic() > self.deadline:
                return False
            t = self._cheapest()
            if t < 0 and not rechecked:
                rechecked = True
                for u, there in enumerate(self.resident):
                    if there and self.work.movable[u] and self.value[u] == _NEVER:
                        self._set_least(u, 0.0, True)
                continue
            if t < 0:
                t = self._cheapest_locked(held)
            if t < 0:
                return False
            self._evict(t)
            gone.append(t)
        # One large tensor may have made the smaller ones before it unnecessary.
        for t in reversed(gone[:-1]):
            if self.used_bytes + need + self.work.sizes[t] <= self.budget_bytes:
                self._readmit(t)
        return True

    def _cheapest(self) -> int:
        """Return the tensor to evict, or -1 where none may be."""
        scores = self.score * self.nearness[self.due - self.now]
        priced: set[int] = set()
        while True:
            t = int(scores.argmin())
            if scores[t] == _NEVER:
                return -1
            if t in priced or (not self.stale[t] and self.least_ns[t] < _NEVER):
                return t
            self._price(t)
            priced.add(t)
            scores[t] = self.score[t] * self.nearness[self.due[t] - self.now]

    def _cheapest_locked(self, held: Sequence[int]) -> int:
        """Return the cheapest tensor that only outer pending ops hold; it is made again later."""
        best, chosen = _NEVER, -1
        for t, locks in enumerate(self.locks):
            if not locks or not self.resident[t] or t in held or self.value[t] >= best:
                continue
            if self._cost_ns(t) < _NEVER:
                best, chosen = self.value[t], t
        return chosen

    def _evict(self, t: int) -> None:
        self.resident[t] = False
        self.used_bytes -= self.work.sizes[t]
        self.score[t] = _NEVER
        for u in self._made_from([t]):
            self.stale[u] = True

    def _readmit(self, t: int) -> None:
        cost_ns = self._cost_ns(t)
        self.resident[t] = True
        self.used_bytes += self.work.sizes[t]
        self._set_least(t, cost_ns, False)
        self._cheapen_below([t], cost_ns)

    def _cheapen_below(self, made: Sequence[int], cost_ns: float) -> None:
        """Take `cost_ns` off what is made from tensors that are there from now on."""
        for u in self._made_from(made):
            if self.least_ns[u] == _NEVER or cost_ns == _NEVER:
                self._set_least(u, 0.0, True)
            else:
                self._set_least(u, max(0.0, self.least_ns[u] - cost_ns), self.stale[u])

    def _made_from(self, tensors: Sequence[int]) -> list[int]:
        """Return the resident tensors that are made from `tensors` by way of evicted ones."""
        work, resident = self.work, self.resident
        found: list[int] = []
        stack, seen = list(tensors), set(tensors)
        while stack:
            for op in work.consumers[stack.pop()]:
                if op >= self.now:
                    break
                for u in work.outputs[op]:
                    if u not in seen:
                        seen.add(u)
                        (found if resident[u] else stack).append(u)
        return found

    def _price(self, t: int) -> None:
        """Find the true cost of making `t` again."""
        cost_ns = self._cost_ns(t)
        self._set_least(t, cost_ns, False)
        if cost_ns == _NEVER:
            self.value[t] = self._loss(t)
            self.score[t] = _NEVER if self.locks[t] else self.value[t]

    def _set_least(self, t: int, least_ns: float, stale: bool) -> None:
        self.least_ns[t], self.stale[t] = least_ns, stale
        value = _NEVER
        if least_ns < _NEVER:
            value = (least_ns + 1.0) ** self.weights.cost / self.divisor[t]
        elif self.next_use[t] == len(self.work.time_ns):
            value = 0.0
        self.value[t] = value
        self.score[t] = _NEVER if self.locks[t] else value

    def _cost_ns(self, t: int) -> float:
        """Time of all ops that would have to run to make `t` again; infinite if one cannot."""
        work, resident = self.work, self.resident
        source = work.producer[t]
        stack, seen = [source], {source}
        total_ns = 0.0
        while stack:
            op = stack.pop()
            if not work.recomputable[op]:
                return _NEVER
            total_ns += work.time_ns[op]
            for u in work.inputs[op]:
                if not resident[u]:
                    source = work.producer[u]
                    if source not in seen:
                        seen.add(source)
                        stack.append(source)
        return total_ns

    def _loss(self, t: int) -> float:
        """Value of a tensor that cannot be made again once it is gone.

        It has to stay while it is read later, or something evicted that is made from it is.
        """
        ops = len(self.work.time_ns)
        if self.next_use[t] < ops:
            return _NEVER
        loss = 0.0
        stack, seen = [t], {t}
        while stack:
            for op in self.work.consumers[stack.pop()]:
                if op >= self.now:
                    break
                for u in self.work.outputs[op]:
                    if u in seen:
                        continue
                    seen.add(u)
                    if self.next_use[u] < ops:
                        if not self.resident[u]:
                            return _NEVER
                        loss = _LAST_RESORT
                    if not self.resident[u]:
                        stack.append(u)
        return loss


def _nearness(ops: int, weights: Weights) -> numpy.typing.NDArray[numpy.float64]:
    """By (op of the next use - op now): the factor of the score; dead tensors are from `ops` on.

    Returns:
        (2 ops + 1,) factors.
    """
    factors = (numpy.arange(1, 2 * ops + 2, dtype=numpy.float64)) ** -weights.distance
    if weights.dead_first:
        factors[ops:] *= _DEAD
    return factors


def recomputed_tensors(work: Workload, sequence: Sequence[int]) -> frozenset[int]:
    """Return the movable outputs of the ops that `sequence` runs more than once."""
    seen: set[int] = set()
    again: set[int] = set()
    for op in sequence:
        if op in seen:
            again.update(work.outputs[op])
        seen.add(op)
    return frozenset(again)
