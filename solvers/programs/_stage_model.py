"""Checkmate's model of a step in stages, as a MILP or as its linear relaxation.

`checkmate` says where it comes from and how it deviates from the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memplan.planner.problem import Problem
from memplan.planner.schedule import Drop, Schedule, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.solvers.programs._milp import CostScale, add_row
from memplan.solvers.programs._stages import Stages


class StageModel:
    """The variables R, S, FREE and live bytes of one problem, in the paper's letters.

    R[t, i]: op i runs again in stage t. S[t, k]: tensor k is there when stage t begins.
    F[t, k, i]: k is freed right after op i of stage t. U[t, i]: movable bytes after op i.
    With `relaxed`, R and S may be anything from 0 to 1. With `paper`, F is binary as in the
    paper's equations 7b and 7c, which have a weaker relaxation than the rows of this project.
    """

    def __init__(
        self, problem: Problem, stages: Stages, relaxed: bool = False, paper: bool = False
    ) -> None:
        import pulp

        kind = "Continuous" if relaxed else "Binary"
        self.paper, self.kind = paper, kind

        self.stages = stages
        self.graph, self.budget_bytes = problem.graph, problem.budget_bytes
        self.scale = CostScale.of([op.time_ns for op in self.graph.ops])
        # Large coefficients cost accuracy: bytes as a share of the budget, unless small.
        self.bytes_unit = 1.0 if self.budget_bytes <= 10**5 else self.budget_bytes / 1e4
        self.problem = pulp.LpProblem("checkmate", pulp.LpMinimize)
        ops = range(len(self.graph.ops))
        self.r = {
            (t, i): self.problem.add_variable(f"R_{t}_{i}", 0, 1, kind)
            for t in ops
            for i in stages.again[t]
        }
        self.s = {
            (t, k): self.problem.add_variable(f"S_{t}_{k}", 0, 1, kind)
            for t in ops
            for k in stages.carried[t]
        }
        self.f: dict[tuple[int, int, int], Any] = {}
        self.u: dict[tuple[int, int], Any] = {}
        times_ns = [op.time_ns for op in self.graph.ops]
        self.problem += pulp.LpAffineExpression(
            [(r, times_ns[i] / self.scale.unit_ns) for (_, i), r in self.r.items()]
        )
        for t in ops:
            self._availability(t)
            self._memory(t)

    def _row(self, terms: Sequence[tuple[Any, float]], sense: str, right: float) -> None:
        add_row(self.problem, terms, sense, right)

    def _availability(self, t: int) -> None:
        """Equations 1b and 1c, and no instance that nothing reads."""
        source = self.stages.source
        for k in self.stages.carried[t]:
            here = (self.s[t, k], 1.0)
            if source[k] < t - 1:
                before = [(variable, -1.0) for variable in self._stays(t - 1, k)]
                self._row([here, *before], "<=", 0.0)
            if (t, source[k]) in self.r:
                self._row([here, (self.r[t, source[k]], 1.0)], "<=", 1.0)
        for i in (*self.stages.again[t], t):
            runs = [] if i == t else [(self.r[t, i], 1.0)]
            for k in self.stages.inputs[i]:
                there = [(self.s[t, k], -1.0)]
                if (t, source[k]) in self.r:
                    there.append((self.r[t, source[k]], -1.0))
                self._row([*runs, *there], "<=", -1.0 if i == t else 0.0)

    def _stays(self, t: int, k: int) -> list[Any]:
        """Variables one of which is 1 where k is there at the end of stage t, not made in it."""
        source = self.stages.source[k]
        return [self.s[t, k], *([self.r[t, source]] if (t, source) in self.r else [])]

    def _memory(self, t: int) -> None:
        """Equations 2 and 3: the bytes in use at every op of stage `t`."""
        stages, unit = self.stages, self.bytes_unit
        size = [tensor.nbytes / unit for tensor in self.graph.tensors]
        room = (self.budget_bytes - stages.fixed_bytes[t]) / unit
        self._frees(t)
        live = [(self.s[t, k], size[k]) for k in stages.carried[t]]
        for i in stages.again[t]:
            again = self.r[t, i]
            self._row([*live, (again, stages.running_bytes[i] / unit)], "<=", room)
            after = self.u[t, i] = self.problem.add_variable(f"U_{t}_{i}", 0)
            made = sum(size[k] for k in stages.outputs[i])
            touched = (*stages.inputs[i], *stages.outputs[i])
            freed = [(self.f[t, k, i], -size[k]) for k in touched if (t, k, i) in self.f]
            self._row([(after, -1.0), *live, (again, made), *freed], "==", 0.0)
            live = [(after, 1.0)]
        self._row(live, "<=", room - stages.running_bytes[t] / unit)

    def _frees(self, t: int) -> None:
        """Equation 5: a tensor leaves after an op that runs, if no later one reads it."""
        stages = self.stages
        touched: dict[int, list[int]] = {}
        for i in stages.again[t]:
            for k in (*stages.inputs[i], *stages.outputs[i]):
                touched.setdefault(k, []).append(i)
        for k, ops in touched.items():
            if k in stages.inputs[t]:
                continue
            for i in ops:
                self.f[t, k, i] = self.problem.add_variable(
                    f"F_{t}_{k}_{i}", 0, 1, self.kind if self.paper else "Continuous"
                )
            (self._frees_by_hazards if self.paper else self._frees_once)(t, k, ops)

    def _frees_once(self, t: int, k: int, ops: Sequence[int]) -> None:
        """Each factor of equation 5 bounds F; of one stage at most one F is 1 (theorem 4.1)."""
        frees = []
        for at, i in enumerate(ops):
            free = self.f[t, k, i]
            self._row([(free, 1.0), (self.r[t, i], -1.0)], "<=", 0.0)
            for j in ops[at + 1 :]:
                self._row([(free, 1.0), (self.r[t, j], 1.0)], "<=", 1.0)
            frees.append((free, 1.0))
        if (t + 1, k) in self.s:
            frees.append((self.s[t + 1, k], 1.0))
        self._row(frees, "<=", 1.0)

    def _frees_by_hazards(self, t: int, k: int, ops: Sequence[int]) -> None:
        """Equations 7a to 7c: F is 1 just where the number of hazards is 0."""
        for at, i in enumerate(ops):
            free = self.f[t, k, i]
            hazards = [(self.r[t, i], -1.0), *((self.r[t, j], 1.0) for j in ops[at + 1 :])]
            if (t + 1, k) in self.s:
                hazards.append((self.s[t + 1, k], 1.0))
            # hazards + 1 is their number, at most as many as there are terms.
            self._row([(free, -1.0), *((x, -f) for x, f in hazards)], "<=", 0.0)
            most = float(len(hazards))
            self._row([(free, most), *hazards], "<=", most - 1.0)

    def schedule(self, values: Mapping[str, float]) -> Schedule:
        """Read the ops of all stages, one after the other."""
        order = []
        for t in range(len(self.graph.ops)):
            order += [i for i in self.stages.again[t] if values[self.r[t, i].name] > 0.5]
            order.append(t)
        return schedule_of(self.graph, order)

    def start_values(self, schedule: Schedule | None) -> dict[str, float] | None:
        """Return every variable's value for a schedule, or None if stages cannot express it."""
        rows = None if schedule is None else self.stages.split(sequence_of(schedule))
        if rows is None:
            return None
        staged = schedule_of(self.graph, [i for row in rows for i in row])
        if simulate(self.graph, staged).peak_bytes > self.budget_bytes:
            return None
        values = {v.name: 0.0 for v in self.problem.variables()}
        size = [tensor.nbytes / self.bytes_unit for tensor in self.graph.tensors]
        drops = _drops_after(staged)
        there: set[int] = set()
        for t, row in enumerate(rows):
            values |= {self.s[t, k].name: 1.0 for k in there}
            for i in (*self.stages.again[t], t):
                gone: set[int] = set()
                if i in row:
                    there |= set(self.stages.outputs[i])
                    gone = there & next(drops)
                    there -= gone
                if i < t:
                    values[self.r[t, i].name] = float(i in row)
                    values |= {self.f[t, k, i].name: 1.0 for k in gone}
                    values[self.u[t, i].name] = sum(size[k] for k in there)
        return values


def _drops_after(schedule: Schedule) -> Iterator[set[int]]:
    """For each `Compute` the tensors that are dropped before the next one."""
    dropped: set[int] | None = None
    for step in schedule:
        if isinstance(step, Drop):
            assert dropped is not None
            dropped.add(step.tensor)
            continue
        if dropped is not None:
            yield dropped
        dropped = set()
    if dropped is not None:
        yield dropped
