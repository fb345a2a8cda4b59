"""A small relaxation of all schedules of the captured order, seen at a few instants.

An instant a is the moment after the first run of op a - 1 and the drops that follow it. Instants
0 = a_0 < a_1 < .. divide the step into windows; window j lasts from a_j to a_(j+1). Of a schedule
only this is looked at:

    x[j, k]  tensor k, made first before a_j, is on the device at a_j
    r[j, i]  op i has a run in window j that is not its first
    R[j, i]  op i has such a run after a_j, in any window

**Every schedule whose first runs keep the captured order satisfies these rows**, whatever else it
does: recompute backward ops, run an op many times, in any order between two first runs.

1.  r[j, i] and R[j+1, i] <= R[j, i] <= r[j, i] + R[j+1, i]: by definition.
2.  Read. If a first run of window j reads k, made before a_j, then x[j, k] + r[j, p(k)] >= 1,
    with p(k) the op that makes k: the instance that is read was there at a_j or was made since.
    If any first run after a_j reads k, x[j, k] + R[j, p(k)] >= 1, for the same reason.
3.  Made from. r[j, i] <= x[j, k] + r[j, p(k)] and R[j, i] <= x[j, k] + R[j, p(k)] for every
    input k of i that is made before a_j: the first run of i after a_j reads an instance that was
    there or was made since.
4.  Carried. x[j+1, k] <= x[j, k] + r[j, p(k)].
5.  Bytes at the end. While op a_j - 1 runs for the first time, just before a_j, what is there at
    a_j is there, beside the op's inputs, outputs and workspace, the step's given tensors, and
    the pinned tensors that were made before.
6.  Bytes within. Let b be an op of window j, and k a tensor made before b. If p(k) does not run
    again in window j, k is there while b runs for the first time wherever it is read by a
    first run after b in the window, or is there at a_(j+1). So of k at least 1 - r[j, p(k)] or
    x[j+1, k] - r[j, p(k)] is there, beside what b itself needs.

The objective counts every r once; a schedule pays for at least as much. The smallest tensors,
together a thousandth of the budget, count as being always there and as having no bytes, which
only makes the relaxation weaker. So the optimum, with or without integrality, is a bound.

The R are what makes it strong. Without them a linear program meets a demand for one
recomputation by two halves in two windows, both of which read the same half of an input; with
them, what is needed after an instant and is not there costs a whole recomputation. Few
instants, right after the ops at which memory is scarce, are therefore better than many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from memplan.planner.problem import Problem
from memplan.solvers.programs._linear_program import INFINITY, LinearProgram, ProgramResult
from memplan.solvers.programs._milp import CostScale, Outcome
from memplan.solvers.programs._stages import Stages, smallest_tensors

_UNITS = 1e4
"""Bytes are counted in this fraction of the budget; larger coefficients cost accuracy."""
_SMALL_SHARE = 1e-3

_Term = tuple[int, float]


class Relaxation:
    """The relaxation of one problem, as a linear program.

    Attributes:
        program: Minimises the extra time in units of `scale`; with `least`, the budget in units
            of `unit_bytes`.
        x: Columns by (instant, tensor).
        r: Columns by (window, op).
    """

    def __init__(
        self,
        problem: Problem,
        stages: Stages,
        instants: Sequence[int],
        *,
        least: bool = False,
        room: float = 1.0,
    ) -> None:
        """Build it.

        Args:
            problem: The problem.
            stages: Of its graph.
            instants: Ops before which there is an instant; 0 and the end are added.
            least: Whether to ask for the smallest budget instead of the least time.
            room: Share of what the budget leaves beside an op that rows 5 may use; below 1 the
                optimum is no bound any more.
        """
        self.graph, self.stages = problem.graph, stages
        count = len(self.graph.ops)
        self.edges = sorted({0, count, *(a for a in instants if 0 < a < count)})
        self.unit_bytes = max(1.0, problem.budget_bytes / _UNITS)
        small = smallest_tensors(problem, stages, _SMALL_SHARE)
        self.seen = [movable and t not in small for t, movable in enumerate(stages.movable)]
        self.inputs = [tuple(t for t in ts if self.seen[t]) for ts in stages.inputs]
        self.outputs = [tuple(t for t in ts if self.seen[t]) for ts in stages.outputs]
        self.size = [t.nbytes / self.unit_bytes for t in self.graph.tensors]
        self.program = LinearProgram()
        self.scale = CostScale.of([op.time_ns for op in self.graph.ops])
        self.budget_column = -1
        self.budget, self.room = problem.budget_bytes / self.unit_bytes, room
        if least:
            self.budget_column = self.program.column(1.0, 0.0, self._most())
        self.x: dict[tuple[int, int], int] = {}
        self.r: dict[tuple[int, int], int] = {}
        self.later: dict[tuple[int, int], int] = {}
        """R of the docstring."""
        self._add_columns(costs=not least)
        for j, (start, stop) in enumerate(pairwise(self.edges)):
            self._runs(j, stop)
            self._reads(j, start, stop)
            self._bytes_within(j, start, stop)
            self._bytes_at_end(j + 1, stop)

    def _most(self) -> float:
        """Return at least what keeping everything uses."""
        workspace_bytes = sum(op.workspace_bytes for op in self.graph.ops)
        return sum(self.size) + (self.graph.given_bytes + workspace_bytes) / self.unit_bytes

    def _add_columns(self, *, costs: bool) -> None:
        unit_ns = self.scale.unit_ns
        reach = self.stages.reach
        for j, (start, stop) in enumerate(pairwise(self.edges)):
            for i in range(len(self.graph.ops)):
                if not self.graph.ops[i].recomputable:
                    continue
                if not any(reach[t] >= start for t in self.outputs[i]):
                    continue
                if i < stop:
                    cost = self.graph.ops[i].time_ns / unit_ns if costs else 0.0
                    self.r[j, i] = self.program.column(cost, integer=True)
            for t, seen in enumerate(self.seen):
                if seen and self.stages.source[t] < start <= reach[t]:
                    self.x[j, t] = self.program.column(integer=True)
        last = len(self.edges) - 2
        for (j, i), column in self.r.items():
            only = j == last or (j + 1, i) not in self.r
            self.later[j, i] = column if only else self.program.column(integer=True)

    def bound_ns(self, result: ProgramResult, *, integral: bool) -> int:
        """Return the time that no schedule beats, by the end of a run of `program`.

        Args:
            result: What the run ended with.
            integral: Whether it was a run with integrality. Its optimum is counted in whole
                nanoseconds, so that no rounding of the objective widens the gap.
        """
        if integral and result.outcome is Outcome.OPTIMAL:
            extra_ns = sum(
                self.graph.ops[i].time_ns
                for (_, i), column in self.r.items()
                if result.values[column] > 0.5
            )
            return self.graph.time_ns + extra_ns
        return self.graph.time_ns + self.scale.bound_ns(result.bound)

    def keep(self, instant: int, tensors: Iterable[int]) -> None:
        """Require that `tensors` are there at an instant; after that there is no bound."""
        at = self.edges.index(instant)
        for t in tensors:
            if (at, t) in self.x:
                self.program.lower[self.x[at, t]] = 1.0

    def _term(
        self, columns: dict[tuple[int, int], int], key: tuple[int, int], factor: float
    ) -> list[_Term]:
        column = columns.get(key)
        return [] if column is None else [(column, factor)]

    def _made(self, j: int, t: int, factor: float = 1.0) -> list[_Term]:
        """Return the term of r for the op that makes `t`, if it may run again in window `j`."""
        return self._term(self.r, (j, self.stages.source[t]), factor)

    def _runs(self, j: int, stop: int) -> None:
        """Rows 1."""
        for i in range(stop):
            if (j, i) not in self.r or self.later[j, i] == self.r[j, i]:
                continue
            here, later, after = self.r[j, i], self.later[j, i], self.later[j + 1, i]
            self.program.row(0.0, [(later, 1.0), (here, -1.0)], INFINITY)
            self.program.row(0.0, [(later, 1.0), (after, -1.0)], INFINITY)
            self.program.row(0.0, [(here, 1.0), (after, 1.0), (later, -1.0)], INFINITY)

    def _reads(self, j: int, start: int, stop: int) -> None:
        """Rows 2, 3 and 4."""
        add = self.program.row
        consumers = self.graph.consumers
        for t, seen in enumerate(self.seen):
            source = self.stages.source[t]
            if not seen or source >= start or (j, t) not in self.x:
                continue
            there = [(self.x[j, t], 1.0)]
            ever = self._term(self.later, (j, source), 1.0)
            here = self._made(j, t)
            if any(start <= c < stop for c in consumers[t]):
                add(1.0, there + here, INFINITY)
            elif consumers[t][-1] >= stop:
                add(1.0, there + ever, INFINITY)
            if (j + 1, t) in self.x:
                add(0.0, [*there, *here, (self.x[j + 1, t], -1.0)], INFINITY)
        for i in range(stop):
            if (j, i) not in self.r:
                continue
            for t in self.inputs[i]:
                if self.stages.source[t] >= start:
                    continue
                there = [(self.x[j, t], 1.0)]
                add(0.0, [*there, *self._made(j, t), (self.r[j, i], -1.0)], INFINITY)
                if self.later[j, i] != self.r[j, i]:
                    ever = self._term(self.later, (j, self.stages.source[t]), 1.0)
                    add(0.0, [*there, *ever, (self.later[j, i], -1.0)], INFINITY)

    def _within(self, terms: Iterable[_Term], used: float) -> None:
        """Require that `terms` and `used` are within the budget."""
        if self.budget_column >= 0:
            self.program.at_most([*terms, (self.budget_column, -1.0)], -used)
        else:
            self.program.at_most(terms, self.budget - used)

    def need(self, b: int) -> float:
        """Return what is in use while op `b` runs for the first time, in any schedule.

        In units of `unit_bytes`.
        """
        fixed = (self.stages.fixed_bytes[b] + self.stages.running_bytes[b]) / self.unit_bytes
        return fixed + sum(self.size[t] for t in self.inputs[b])

    def _bytes_at_end(self, j: int, stop: int) -> None:
        """Rows 5."""
        own = {*self.inputs[stop - 1], *self.outputs[stop - 1]}
        there = [
            (self.x[j, t], self.size[t])
            for t, seen in enumerate(self.seen)
            if seen and (j, t) in self.x and t not in own
        ]
        if there:
            need = self.need(stop - 1)
            self._within(there, need + (1.0 - self.room) * max(0.0, self.budget - need))

    def _bytes_within(self, j: int, start: int, stop: int) -> None:
        """Rows 6; the sum over all tensors is kept from op to op."""
        last_read = {t: b for b in range(start, stop) for t in self.inputs[b]}
        stay = {t: self._staying(j, t) for t, seen in enumerate(self.seen) if seen}
        live = _Sum(self.program, sum(self.size))
        for t, seen in enumerate(self.seen):
            if seen and self.stages.source[t] < start:
                self._add(live, j, t, 1.0, read=t in last_read, stay=stay[t])
        for b in range(start, stop):
            for t in self.inputs[b]:
                # Its own inputs are there in full: `need` has them.
                self._add(live, j, t, -1.0, read=True, stay=stay[t])
            if not live.is_empty:
                self._within(live.terms(), self.need(b) + live.fixed)
            for t in (*self.inputs[b], *self.outputs[b]):
                self._add(live, j, t, 1.0, read=last_read.get(t, -1) > b, stay=stay[t])

    def _staying(self, j: int, t: int) -> list[_Term]:
        """Return what is at least there of `t`, from its making to the end of window `j`."""
        if (j + 1, t) not in self.x:
            return []
        made = self._made(j, t, -1.0)
        if not made:
            return [(self.x[j + 1, t], 1.0)]
        column = self.program.column()
        self.program.row(
            0.0, [(column, 1.0), (self.x[j + 1, t], -1.0), (made[0][0], 1.0)], INFINITY
        )
        return [(column, 1.0)]

    def _add(
        self, live: _Sum, j: int, t: int, sign: float, *, read: bool, stay: list[_Term]
    ) -> None:
        size = sign * self.size[t]
        if read:
            live.fixed += size
            live.add(self._made(j, t, -size))
        else:
            live.add([(column, size * factor) for column, factor in stay])


class _Sum:
    """A sum of terms that changes a little from row to row, kept in columns of its own."""

    def __init__(self, program: LinearProgram, most: float) -> None:
        self.program, self.most, self.fixed = program, most, 0.0
        self.column = -1
        self.change: dict[int, float] = {}

    def add(self, terms: Iterable[_Term]) -> None:
        """Add terms."""
        for column, factor in terms:
            self.change[column] = self.change.get(column, 0.0) + factor

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever added."""
        return self.column < 0 and not any(self.change.values())

    def terms(self) -> list[_Term]:
        """Return the sum as one column where it is long."""
        change = [(column, factor) for column, factor in self.change.items() if factor]
        before = [] if self.column < 0 else [(self.column, 1.0)]
        if len(change) <= 12:
            return before + change
        column = self.program.column(lower=-self.most, upper=self.most)
        self.program.row(0.0, [*before, *change, (column, -1.0)], 0.0)
        self.column, self.change = column, {}
        return [(column, 1.0)]
