"""The online run of an eager framework that evicts when memory is full, as a schedule.

Ops come in captured order and nothing is known of those to come, but for the moment at which the
program lets a tensor go. Before an op runs, its evicted inputs are made again, recursively; when
there is no room for its outputs, a policy says which tensor is evicted. A policy is a subclass.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum

from memplan.planner.problem import Problem
from memplan.planner.schedule import Compute, Drop, Schedule, Step
from memplan.solvers.programs._stages import Stages

_MOST_REPEATS = 50
"""Runs for each op of the graph, on average, after which an online run is given up."""


class Dealloc(Enum):
    """What happens once the program needs a tensor no more."""

    IGNORE = "ignore"
    """Nothing; it is evicted when its turn comes."""
    EAGER = "eager"
    """It is evicted at once, and made again where an evicted tensor depends on it."""
    BANISH = "banish"
    """It goes for good as soon as no evicted tensor depends on it; then what is made from it can
    be evicted no more."""


class OnlineRun(ABC):
    """The state of the device. `run` returns the schedule, or None where it got stuck.

    Attributes:
        clock_ns: Time of all runs so far.
        resident: For each tensor whether it is on the device.
        used_ns: For each tensor the clock at its last access.
        locks: For each tensor how many pending ops need it.
    """

    def __init__(self, problem: Problem, dealloc: Dealloc, deadline: float) -> None:
        self.graph, self.budget_bytes = problem.graph, problem.budget_bytes
        self.dealloc, self.deadline = dealloc, deadline
        stages = Stages(self.graph)
        self.movable, self.inputs, self.outputs = stages.movable, stages.inputs, stages.outputs
        self.producer, self.reach = stages.source, stages.reach
        self.running_bytes = stages.running_bytes
        self.sizes = [t.nbytes for t in self.graph.tensors]
        self.made_from = self._made_from()
        self.leaves = self._leaves()
        count = len(self.graph.tensors)
        self.resident = [not movable for movable in self.movable]
        self.there: dict[int, None] = {}
        """Movable tensors on the device, in the order in which they came."""
        self.used_ns, self.locks = [0] * count, [0] * count
        self.banished = [False] * count
        self.released = [False] * count
        self.bytes_now = self.graph.given_bytes
        self.clock_ns = self.runs = self.now = 0
        self.steps: list[Step] = []

    def _made_from(self) -> list[tuple[int, ...]]:
        """For each movable tensor the movable tensors that are made from it."""
        return [
            tuple(u for op in readers for u in self.outputs[op]) if self.movable[t] else ()
            for t, readers in enumerate(self.graph.consumers)
        ]

    def _leaves(self) -> list[list[int]]:
        """For each op the tensors that the program needs no more after it."""
        leaves: list[list[int]] = [[] for _ in self.graph.ops]
        for t, movable in enumerate(self.movable):
            if not movable:
                continue
            once = not self.graph.ops[self.producer[t]].recomputable
            # What cannot be made again stays as long as anything may be made from it.
            last = max(self.reach[t], self.graph.consumers[t][-1]) if once else None
            leaves[self.graph.consumers[t][-1] if last is None else last].append(t)
        return leaves

    @abstractmethod
    def choose(self, need_bytes: int) -> int:
        """Return the next tensor to evict for an output of `need_bytes`, or -1."""

    @abstractmethod
    def on_evict(self, t: int) -> None:
        """Note that `t` left."""

    @abstractmethod
    def on_make(self, t: int, again: bool) -> None:
        """Note that `t` was made."""

    def run(self) -> Schedule | None:
        """Run the whole step."""
        for op in range(len(self.graph.ops)):
            self.now = op
            if not self._compute(op):
                return None
            for t in self.leaves[op]:
                self._release(t)
            if self.dealloc is Dealloc.BANISH:
                self._banish_waiting()
        return tuple(self.steps)

    def candidates(self) -> list[int]:
        """Return the tensors that may be evicted."""
        return [t for t in self.there if self.may_evict(t)]

    def may_evict(self, t: int) -> bool:
        """Return whether `t` is not in use, and can be made again."""
        source = self.producer[t]
        return (
            not self.locks[t]
            and self.graph.ops[source].recomputable
            and not any(self.banished[u] for u in self.inputs[source])
        )

    def neighbours(self, t: int, up: bool) -> tuple[int, ...]:
        """Return what is made from `t`, if `up`, else what `t` is made from."""
        return self.made_from[t] if up else self.inputs[self.producer[t]]

    def make_room(self, op: int, need_bytes: int, again: bool) -> bool:
        """Evict until `op` can run, whose outputs and workspace take `need_bytes`."""
        while self.bytes_now + need_bytes > self.budget_bytes:
            t = self.choose(need_bytes)
            if t < 0:
                return False
            self.evict(t)
        return True

    def cost_ns(self, t: int) -> int:
        """Return the time of the op that makes `t`."""
        return self.graph.ops[self.producer[t]].time_ns

    def _compute(self, op: int) -> bool:
        pending = [op]
        self._lock(self.inputs[op], 1)
        while pending:
            top = pending[-1]
            missing = next((t for t in self.inputs[top] if not self.resident[t]), None)
            if missing is not None:
                source = self.producer[missing]
                if self.banished[missing] or not self._may_go_on():
                    return False
                pending.append(source)
                self._lock(self.inputs[source], 1)
                continue
            if not self._run(top, again=len(pending) > 1):
                return False
            pending.pop()
            self._lock(self.inputs[top], -1)
        return True

    def _may_go_on(self) -> bool:
        most = _MOST_REPEATS * (len(self.graph.ops) + 20)
        return self.runs < most and time.monotonic() < self.deadline

    def _lock(self, tensors: Sequence[int], change: int) -> None:
        for t in tensors:
            self.locks[t] += change

    def _run(self, op: int, again: bool) -> bool:
        need_bytes = self.running_bytes[op]
        if again:
            # Outputs that are still there would be there twice.
            for t in self.outputs[op]:
                if self.resident[t]:
                    self._drop(t)
        if not self.make_room(op, need_bytes, again):
            return False
        self.steps.append(Compute(op))
        self.runs += 1
        self.clock_ns += self.graph.ops[op].time_ns
        for t in self.graph.ops[op].outputs:
            self._place(t, again)
        for t in self.inputs[op]:
            self.used_ns[t] = self.clock_ns
        return True

    def _place(self, t: int, again: bool) -> None:
        if not self.movable[t]:
            if self.graph.tensors[t].pinned:
                self.bytes_now += 0 if again else self.sizes[t]
            elif self.sizes[t]:
                # Nobody reads it.
                self.steps.append(Drop(t))
            return
        self.resident[t] = True
        self.there[t] = None
        self.bytes_now += self.sizes[t]
        self.used_ns[t] = self.clock_ns
        self.on_make(t, again)
        if self.banished[t]:
            self._drop(t)

    def _release(self, t: int) -> None:
        self.released[t] = True
        if not self.graph.ops[self.producer[t]].recomputable:
            self._banish(t)
        elif self.dealloc is Dealloc.EAGER and self.resident[t] and self.may_evict(t):
            self.evict(t)

    def _banish_waiting(self) -> None:
        """Banish what the program needs no more and nothing evicted is made from."""
        waiting = [t for t, gone in enumerate(self.released) if gone and not self.banished[t]]
        for t in reversed(waiting):
            if all(self.resident[u] or self.banished[u] for u in self.made_from[t]):
                self._banish(t)

    def _banish(self, t: int) -> None:
        self.banished[t] = True
        if self.resident[t]:
            self._drop(t)

    def evict(self, t: int) -> None:
        """Take `t` off the device until it is needed again."""
        self._drop(t)
        self.on_evict(t)

    def _drop(self, t: int) -> None:
        self.steps.append(Drop(t))
        self.resident[t] = False
        del self.there[t]
        self.bytes_now -= self.sizes[t]
        self.on_drop(t)

    def on_drop(self, t: int) -> None:  # noqa: B027  most runs have no addresses to free
        """Note that the memory of `t` is free, for whatever reason."""
