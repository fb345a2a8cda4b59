"""The constraint program of retention intervals; `moccasin` says what it is.

Letters as in the paper: run i of op v is present (a) and starts at an event (s); tensor x of that
run stays until an event (e), both included.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from memplan.planner.problem import Problem
from memplan.planner.schedule import Schedule, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.solvers.programs._stages import Stages


def event(stage: int, op: int) -> int:
    """Return the moment at which `op` may run in `stage`."""
    return stage * (stage + 1) // 2 + op


class IntervalModel:
    """The program of one problem, with a complete hint where `start` is in its space."""

    def __init__(
        self, problem: Problem, stages: Stages, copies: int, start: Schedule | None
    ) -> None:
        from ortools.sat.python import cp_model

        self.graph, self.stages, self.budget_bytes = problem.graph, stages, problem.budget_bytes
        self.cp: Any = cp_model.CpModel()
        self.horizon = event(len(self.graph.ops), 0)
        self.unit_ns = math.gcd(*(op.time_ns for op in self.graph.ops)) or 1
        begun = self._staged(start)
        runs = Counter(sequence_of(start)) if begun is not None and start else Counter()
        self.present: dict[tuple[int, int], Any] = {}
        self.begin: dict[tuple[int, int], Any] = {}
        self.end: dict[tuple[int, int], Any] = {}
        self.reads: dict[tuple[int, int, int, int], Any] = {}
        self.copies = [self._copies(v, max(copies, runs[v])) for v in range(len(self.graph.ops))]
        self._intervals: list[Any] = []
        self._demands: list[int] = []
        for v in range(len(self.graph.ops)):
            for i in range(self.copies[v]):
                self._add_run(v, i)
        for w in range(len(self.graph.ops)):
            for x in stages.inputs[w]:
                for j in range(self.copies[w]):
                    self._add_read(w, j, x)
        room = self.budget_bytes - self.graph.given_bytes
        self.cp.add_cumulative(self._intervals, self._demands, room)
        self.cp.minimize(
            sum(
                self.graph.ops[v].time_ns // self.unit_ns * a
                for (v, i), a in self.present.items()
                if i
            )
        )
        if begun is not None:
            self._hint(begun)

    def _staged(self, start: Schedule | None) -> list[tuple[int, ...]] | None:
        """Return the ops of each stage of the start; None where stages cannot express it."""
        rows = None if start is None else self.stages.split(sequence_of(start))
        if rows is None:
            return None
        staged = schedule_of(self.graph, [i for row in rows for i in row])
        fits = simulate(self.graph, staged).peak_bytes <= self.budget_bytes
        return rows if fits else None

    def _again(self, v: int) -> list[int]:
        """Return the events at which op `v` may run again."""
        count = len(self.graph.ops)
        return [event(t, v) for t in range(v + 1, count) if self.stages.may_run(t, v)]

    def _copies(self, v: int, most: int) -> int:
        return min(most, 1 + len(self._again(v)))

    def _add_run(self, v: int, i: int) -> None:
        cp, last = self.cp, self.horizon - 1
        if i == 0:
            a, s = cp.new_constant(1), cp.new_constant(event(v, v))
        else:
            from ortools.sat.python import cp_model

            a = cp.new_bool_var(f"a_{v}_{i}")
            domain = cp_model.Domain.from_values(self._again(v))
            s = cp.new_int_var_from_domain(domain, f"s_{v}_{i}")
            cp.add_implication(a, self.present[v, i - 1])
            cp.add(s > self.begin[v, i - 1]).only_enforce_if(a)
        self.present[v, i], self.begin[v, i] = a, s
        for x in self.stages.outputs[v]:
            e = self.end[x, i] = cp.new_int_var(event(v, v), last, f"e_{x}_{i}")
            length = cp.new_int_var(1, self.horizon, f"l_{x}_{i}")
            self._occupy(
                cp.new_optional_interval_var(s, length, e + 1, a, f"keep_{x}_{i}"),
                self.graph.tensors[x].nbytes,
            )
            if i:
                cp.add(self.end[x, i - 1] < s).only_enforce_if(a)
        self._add_passing_bytes(v, i, a, s)

    def _add_passing_bytes(self, v: int, i: int, a: Any, s: Any) -> None:
        """What a run takes beside the tensors that are decisions."""
        op, tensors = self.graph.ops[v], self.graph.tensors
        movable = set(self.stages.outputs[v])
        pinned = sum(tensors[x].nbytes for x in op.outputs if tensors[x].pinned)
        others = op.workspace_bytes + sum(
            tensors[x].nbytes for x in op.outputs if x not in movable and not tensors[x].pinned
        )
        if i == 0:
            begin = event(v, v)
            stay = self.cp.new_fixed_size_interval_var(begin, self.horizon - begin, f"pin_{v}")
            self._occupy(stay, pinned)
        else:
            # A second run writes them beside those that are there.
            others += pinned
        moment = self.cp.new_optional_fixed_size_interval_var(s, 1, a, f"pass_{v}_{i}")
        self._occupy(moment, others)

    def _occupy(self, interval: Any, nbytes: int) -> None:
        if nbytes:
            self._intervals.append(interval)
            self._demands.append(nbytes)

    def _add_read(self, w: int, j: int, x: int) -> None:
        """Let run `j` of op `w` read tensor `x` from one run of its producer."""
        cp, u = self.cp, self.stages.source[x]
        a, s = self.present[w, j], self.begin[w, j]
        if self.copies[u] == 1:
            cp.add(self.end[x, 0] >= s).only_enforce_if(a)
            return
        choices = []
        for i in range(self.copies[u]):
            reads = self.reads[x, i, w, j] = cp.new_bool_var(f"r_{x}_{i}_{w}_{j}")
            cp.add_implication(reads, self.present[u, i])
            cp.add(self.begin[u, i] < s).only_enforce_if(reads)
            cp.add(self.end[x, i] >= s).only_enforce_if(reads)
            choices.append(reads)
        cp.add_bool_or([*choices, a.negated()])

    def _hint(self, rows: list[tuple[int, ...]]) -> None:
        """Give every variable its value in a schedule."""
        begins: list[list[int]] = [[] for _ in self.graph.ops]
        last_read: dict[tuple[int, int], int] = {}
        reads: set[tuple[int, int, int, int]] = set()
        for t, row in enumerate(rows):
            for v in row:
                now, j = event(t, v), len(begins[v])
                for x in self.stages.inputs[v]:
                    i = len(begins[self.stages.source[x]]) - 1
                    last_read[x, i] = now
                    reads.add((x, i, v, j))
                begins[v].append(now)
        for (v, i), a in self.present.items():
            there = i < len(begins[v])
            if i:
                self.cp.add_hint(a, there)
                self.cp.add_hint(self.begin[v, i], begins[v][i] if there else self._again(v)[0])
            for x in self.stages.outputs[v]:
                least = begins[v][i] if there else event(v, v)
                self.cp.add_hint(self.end[x, i], last_read.get((x, i), least))
        for key, literal in self.reads.items():
            self.cp.add_hint(literal, key in reads)

    def bound_ns(self, objective: float) -> int:
        """Return the time of the step that a bound on the objective stands for."""
        return self.graph.time_ns + max(0, math.ceil(objective - 1e-6)) * self.unit_ns

    def sequence(self, solver: Any) -> tuple[int, ...]:
        """Return the ops of a solution in the order of their events."""
        runs = [
            (solver.value(self.begin[v, i]), v)
            for (v, i), a in self.present.items()
            if solver.value(a)
        ]
        return tuple(v for _, v in sorted(runs))
