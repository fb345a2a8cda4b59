"""Search every schedule, cheapest first: the oracle that the other solvers are tested against.

Source: Dijkstra (1959), over the states of the device.
Deviations: Only the extra time is searched for: each op's first run has to be paid anyway, so it
    costs nothing here. A step is one op together with the drops before it; of those only the
    smallest sufficient sets are tried, because a state with more on the device can do whatever
    one with less can. For the same reason a state is skipped where one with the same ops done,
    at least its tensors and at most its extra time has been settled.
Exact?: Yes, over every schedule that `verify` accepts. With `fixed_order`, over those whose first
    runs keep the captured order. With `staged` (which implies it), over those which, besides,
    recompute between two first runs in captured order and each op at most once: the schedules
    that the stage models of the literature (Checkmate, Moccasin) can express.
Complexity: Exponential; meant for up to about ten ops.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from memplan.graph_capture.graph import Phase
from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.solver import Solution, Status


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Shortest path over (ops done, tensors on the device).

    Attributes:
        fixed_order: Only schedules whose first runs are in the graph's order.
        staged: As `fixed_order`; and recomputations between two first runs are in the graph's
            order, each op at most once.
        max_ops: Larger graphs are refused with UNKNOWN.
        max_states: Give up with UNKNOWN after settling this many states.
    """

    name: ClassVar[str] = "exhaustive"
    kind: ClassVar[str] = "exact"
    source: ClassVar[str] = "Dijkstra over the states of the device; the oracle of the tests"

    fixed_order: bool = False
    staged: bool = False
    max_ops: int = 14
    max_states: int = 1_000_000

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return a schedule of least time, or the proof that none fits."""
        if refusal := below_limit(problem):
            return refusal
        graph = problem.graph
        if len(graph.ops) > self.max_ops:
            return Solution(
                status=Status.UNKNOWN,
                proven_bound_ns=graph.time_ns,
                reason=f"{len(graph.ops)} ops are more than the {self.max_ops} it searches",
            )
        search = _Search(problem, self.fixed_order or self.staged, self.staged)
        return search.run(self.max_states, time.monotonic() + limits.time_s)


class _State(NamedTuple):
    """What is on the device between two steps; sets of ops and tensors are bits."""

    done: int
    resident: int
    stage_op: int
    """With `staged`: the last op that ran since the last first run, or -1."""


class _Search:
    """One search; `steps` of a node lead to it from the start as linked pairs."""

    def __init__(self, problem: Problem, fixed_order: bool, staged: bool) -> None:
        self.graph = graph = problem.graph
        self.budget_bytes = problem.budget_bytes
        self.fixed_order, self.staged = fixed_order, staged
        self.sizes = [t.nbytes for t in graph.tensors]
        self.inputs = [_bits(op.inputs) for op in graph.ops]
        self.outputs = [_bits(op.outputs) for op in graph.ops]
        self.written = [sum(self.sizes[t] for t in op.outputs) for op in graph.ops]
        self.freeable = _bits(t for t, x in enumerate(graph.tensors) if not x.pinned)
        self.unread = self.freeable & _bits(
            t for t, readers in enumerate(graph.consumers) if not readers
        )
        self.later = _bits(i for i, op in enumerate(graph.ops) if op.phase is not Phase.FORWARD)
        self.all_done = (1 << len(graph.ops)) - 1

    def run(self, max_states: int, deadline: float) -> Solution:
        graph = self.graph
        given = _bits(t for t, source in enumerate(graph.producer) if source is None)
        start = _State(0, given, -1)
        # Ties: more done first, then the order of discovery; the path never decides.
        queue: list[tuple[int, int, int, _State, tuple[object, ...]]] = [(0, 0, 0, start, ())]
        settled: dict[int, list[_State]] = {}
        found = states = 0
        while queue:
            extra_ns, _, _, state, path = heapq.heappop(queue)
            if any(_covers(other, state) for other in settled.get(state.done, ())):
                continue
            if state.done == self.all_done:
                return self._optimum(extra_ns, path, states)
            settled.setdefault(state.done, []).append(state)
            states += 1
            if states > max_states or time.monotonic() > deadline:
                return Solution(
                    status=Status.UNKNOWN,
                    proven_bound_ns=graph.time_ns + extra_ns,
                    reason=f"gave up after {states:,} states",
                    stats={"states": states},
                )
            for op, again, successor in self._successors(state):
                found += 1
                cost_ns = extra_ns + (graph.ops[op].time_ns if again else 0)
                rank = -successor.done.bit_count()
                heapq.heappush(queue, (cost_ns, rank, found, successor, (path, op)))
        return Solution(
            status=Status.INFEASIBLE,
            minimum_bytes=self.budget_bytes + 1,
            proven_bound_ns=graph.time_ns,
            reason=f"searched all {states:,} states",
            stats={"states": states},
        )

    def _optimum(self, extra_ns: int, path: tuple[object, ...], states: int) -> Solution:
        order: list[int] = []
        while path:
            path, op = path  # type: ignore[assignment]
            order.append(op)  # type: ignore[arg-type]
        return Solution(
            status=Status.OPTIMAL,
            schedule=schedule_of(self.graph, reversed(order)),
            proven_bound_ns=self.graph.time_ns + extra_ns,
            stats={"states": states},
        )

    def _successors(self, state: _State) -> Iterator[tuple[int, bool, _State]]:
        """Every op that can run next, whether it ran before, and the state after it."""
        for i, op in enumerate(self.graph.ops):
            again = bool(state.done >> i & 1)
            if again and not self._worth_running_again(i, state):
                continue
            if not again and not self._may_run_first(i, state.done):
                continue
            if self.inputs[i] & ~state.resident:
                continue
            # Outputs that a second run replaces can always go before it.
            resident = state.resident & ~(self.outputs[i] & self.freeable)
            room = self.budget_bytes - self.written[i] - op.workspace_bytes
            stage_op = i if again and self.staged else -1
            for kept in self._drops(resident, self.inputs[i], room):
                after = (kept | self.outputs[i]) & ~self.unread
                yield i, again, _State(state.done | 1 << i, after, stage_op)

    def _worth_running_again(self, i: int, state: _State) -> bool:
        missing = self.outputs[i] & ~state.resident & ~self.unread
        return bool(missing) and self.graph.ops[i].recomputable and i > state.stage_op

    def _may_run_first(self, i: int, done: int) -> bool:
        earlier = ~done & ((1 << i) - 1)
        if self.fixed_order and earlier:
            return False
        op = self.graph.ops[i]
        if op.phase is Phase.FORWARD and done & self.later:
            return False
        return not op.in_order or not any(
            self.graph.ops[j].in_order for j in range(i) if earlier >> j & 1
        )

    def _drops(self, resident: int, needed: int, room: int) -> Iterator[int]:
        """What may stay of `resident` so that it takes at most `room` bytes.

        Only maximal choices: nothing that was dropped would still fit.
        """
        over = sum(self.sizes[t] for t in _members(resident)) - room
        if over <= 0:
            yield resident
            return
        choices = [t for t in _members(resident & ~needed & self.freeable) if self.sizes[t]]
        for dropped, freed in self._enough(choices, over):
            if all(freed - self.sizes[t] < over for t in dropped):
                yield resident & ~_bits(dropped)

    def _enough(self, choices: list[int], over: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Subsets of `choices` that free at least `over` bytes, with what they free."""
        stack: list[tuple[int, tuple[int, ...], int]] = [(0, (), 0)]
        while stack:
            k, taken, freed = stack.pop()
            if freed >= over:
                yield taken, freed
            elif k < len(choices):
                t = choices[k]
                stack.append((k + 1, taken, freed))
                stack.append((k + 1, (*taken, t), freed + self.sizes[t]))


def _covers(other: _State, state: _State) -> bool:
    """Whether `other` can do whatever `state` can; both have the same ops done."""
    return not state.resident & ~other.resident and other.stage_op <= state.stage_op


def _bits(members: Iterator[int] | tuple[int, ...]) -> int:
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


def _members(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
