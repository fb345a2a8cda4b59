"""MONeT's compact model: forward ops run again before a backward op, without FREE variables.

`monet` says where it comes from and how it deviates from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memplan.planner.problem import Problem
from memplan.planner.schedule import Schedule, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.solvers.programs._milp import CostScale, add_row
from memplan.solvers.programs._stages import Stages


class MonetModel:
    """The variables of one problem, in the paper's letters where it has them.

    Stage t runs forward ops again, in captured order, and then op t, for every t that is not
    forward; stage `end` follows the forward pass. R[t, i]: op i runs again in stage t. S[t, k]:
    forward tensor k is there when stage t begins. K[t, k, i]: k is there after its producer's
    place in stage t until op i, which reads it, is done.
    """

    def __init__(self, problem: Problem, end: int) -> None:
        import pulp

        self.graph, self.budget_bytes, self.end = problem.graph, problem.budget_bytes, end
        self.base = Stages(self.graph)
        self.unit = 1.0 if self.budget_bytes <= 10**5 else self.budget_bytes / 1e4
        self.size = [tensor.nbytes / self.unit for tensor in self.graph.tensors]
        self.reach = self._reach()
        self.forward = [t for t in self.base.tensors if self.base.source[t] < end]
        self.stages = range(end, len(self.graph.ops))
        self.carried = {t: [k for k in self.forward if self.reach[k] >= t] for t in self.stages}
        self.again = {t: [i for i in range(end) if self._may_run(t, i)] for t in self.stages}
        self.scale = CostScale.of([op.time_ns for op in self.graph.ops])
        self.problem = pulp.LpProblem("monet", pulp.LpMinimize)
        add = self.problem.add_variable
        self.r = {
            (t, i): add(f"R_{t}_{i}", 0, 1, "Binary") for t in self.stages for i in self.again[t]
        }
        self.s = {
            (t, k): add(f"S_{t}_{k}", 0, 1, "Binary") for t in self.stages for k in self.carried[t]
        }
        self.k: dict[tuple[int, int, int], Any] = {}
        self.u: dict[tuple[int, int], Any] = {}
        self.problem += pulp.LpAffineExpression(
            [(r, self.graph.ops[i].time_ns / self.scale.unit_ns) for (_, i), r in self.r.items()]
        )
        self._forward_pass()
        for t in self.stages:
            self._availability(t)
            self._memory(t)

    @property
    def decisions(self) -> int:
        """Number of binaries."""
        return len(self.r) + len(self.s)

    def _reach(self) -> list[int]:
        """For each forward tensor the last stage in which it may be read, else -1."""
        reach = [-1] * len(self.graph.tensors)
        for i in range(len(self.graph.ops) - 1, -1, -1):
            if i >= self.end:
                last = i
            elif self.graph.ops[i].recomputable:
                last = max((reach[t] for t in self.base.outputs[i]), default=-1)
            else:
                continue
            for t in self.base.inputs[i]:
                reach[t] = max(reach[t], last)
        return reach

    def _may_run(self, stage: int, op: int) -> bool:
        return self.graph.ops[op].recomputable and any(
            self.reach[k] >= stage for k in self.base.outputs[op]
        )

    def _row(self, terms: Sequence[tuple[Any, float]], sense: str, right: float) -> None:
        add_row(self.problem, terms, sense, right)

    def _forward_pass(self) -> None:
        """The bytes in use at each op of the forward pass: what it still reads, and S."""
        base = self.base
        for i in range(self.end):
            fixed_bytes = base.fixed_bytes[i] + base.running_bytes[i]
            room = (self.budget_bytes - fixed_bytes) / self.unit
            terms = []
            for k in self.forward:
                if base.source[k] >= i:
                    continue
                if any(i <= reader < self.end for reader in self.graph.consumers[k]):
                    room -= self.size[k]
                elif (self.end, k) in self.s:
                    terms.append((self.s[self.end, k], self.size[k]))
            self._row(terms, "<=", room)

    def _there(self, t: int, k: int) -> list[tuple[Any, float]]:
        """Terms of: tensor k is there in stage t, kept or made again."""
        source = self.base.source[k]
        terms = [(self.s[t, k], 1.0)] if (t, k) in self.s else []
        return [*terms, (self.r[t, source], 1.0)] if (t, source) in self.r else terms

    def _availability(self, t: int) -> None:
        for k in self.carried[t]:
            if t > self.end:
                before = [(variable, -1.0) for variable, _ in self._there(t - 1, k)]
                self._row([(self.s[t, k], 1.0), *before], "<=", 0.0)
            # Nothing reads the older instance.
            self._row(self._there(t, k), "<=", 1.0)
        for i in (*self.again[t], t):
            for k in self.base.inputs[i]:
                if self.base.source[k] >= self.end:
                    continue
                there = [(variable, -1.0) for variable, _ in self._there(t, k)]
                runs = [] if i == t else [(self.r[t, i], 1.0)]
                self._row([*runs, *there], "<=", -1.0 if i == t else 0.0)

    def _readers(self, t: int, k: int) -> list[int]:
        """Ops that may read k when they run again in stage t, in order."""
        return [i for i in self.graph.consumers[k] if (t, i) in self.r]

    def _memory(self, t: int) -> None:
        """The bytes in use at each op of stage t, as a running sum."""
        base = self.base
        gradients_bytes = sum(
            self.graph.tensors[k].nbytes
            for k in base.tensors
            if self.end <= base.source[k] < t <= self.graph.consumers[k][-1]
        )
        room = (self.budget_bytes - base.fixed_bytes[t] - gradients_bytes) / self.unit
        self._keeps(t)
        live = [(self.s[t, k], self.size[k]) for k in self.carried[t]]
        # What op t reads is there from its producer's place on, whatever else happens.
        held = [k for k in base.inputs[t] if base.source[k] < self.end]
        for i in range(self.end):
            again = self.r.get((t, i))
            if again is not None:
                running = base.running_bytes[i] / self.unit
                self._row([*live, (again, running)], "<=", room)
            changes = self._changes(t, i)
            if changes:
                after = self.u[t, i] = self.problem.add_variable(f"U_{t}_{i}", 0)
                self._row(merged([(after, -1.0), *live, *changes]), "==", 0.0)
                live = [(after, 1.0)]
            room -= sum(self.size[k] for k in held if base.source[k] == i)
        self._row(live, "<=", room - base.running_bytes[t] / self.unit)

    def _keeps(self, t: int) -> None:
        """K falls from reader to reader, down to whether the next stage finds the tensor."""
        for k in self.carried[t]:
            if k in self.base.inputs[t]:
                continue
            readers = self._readers(t, k)
            for i in readers:
                self.k[t, k, i] = self.problem.add_variable(f"K_{t}_{k}_{i}", 0, 1)
            for at, i in enumerate(readers):
                kept = self.k[t, k, i]
                self._row([(self.r[t, i], 1.0), (kept, -1.0)], "<=", 0.0)
                then = self._kept_from(t, k, readers, at + 1)
                self._row([*then, (kept, -1.0)], "<=", 0.0)

    def _kept_from(
        self, t: int, k: int, readers: Sequence[int], at: int
    ) -> list[tuple[Any, float]]:
        """Terms of: k stays for the readers from number `at` on, or for a later stage."""
        if at < len(readers):
            return [(self.k[t, k, readers[at]], 1.0)]
        return [(self.s[t + 1, k], 1.0)] if (t + 1, k) in self.s else []

    def _changes(self, t: int, i: int) -> list[tuple[Any, float]]:
        """Terms of the bytes in use after the place of op i in stage t, less those before.

        What op t reads is left out from its producer's place on: `_memory` counts it.
        """
        changes = []
        for k in self.base.outputs[i]:
            if self.reach[k] < t:
                continue
            changes.append((self.s[t, k], -self.size[k]))
            if k not in self.base.inputs[t]:
                stays = self._kept_from(t, k, self._readers(t, k), 0)
                changes += [(v, self.size[k]) for v, _ in stays]
        for k in self.base.inputs[i]:
            if (t, k, i) not in self.k:
                continue
            readers = self._readers(t, k)
            changes.append((self.k[t, k, i], -self.size[k]))
            stays = self._kept_from(t, k, readers, readers.index(i) + 1)
            changes += [(v, self.size[k]) for v, _ in stays]
        return changes

    def schedule(self, values: Mapping[str, float]) -> Schedule:
        """Read the ops of the forward pass and of all stages."""
        order = list(range(self.end))
        for t in self.stages:
            order += [i for i in self.again[t] if values[self.r[t, i].name] > 0.5]
            order.append(t)
        return schedule_of(self.graph, order)

    def expresses(self, schedule: Schedule) -> list[tuple[int, ...]] | None:
        """Return what `schedule` runs again in each stage; None if it is none of the model's."""
        order = sequence_of(schedule)
        if order[: self.end] != tuple(range(self.end)):
            return None
        rows: list[tuple[int, ...]] = []
        current: set[int] = set()
        for i in order[self.end :]:
            t = self.end + len(rows)
            if i == t:
                rows.append(tuple(sorted(current)))
                current = set()
            elif i in current or (t, i) not in self.r:
                return None
            else:
                current.add(i)
        return rows

    def start_values(self, schedule: Schedule | None) -> dict[str, float] | None:
        """Return every variable's value for a schedule, or None if the model cannot say it."""
        rows = None if schedule is None else self.expresses(schedule)
        if rows is None:
            return None
        order = list(range(self.end))
        for t, row in zip(self.stages, rows, strict=True):
            order += [*row, t]
        if simulate(self.graph, schedule_of(self.graph, order)).peak_bytes > self.budget_bytes:
            return None
        values = {v.name: 0.0 for v in self.problem.variables()}
        there = self._stored(rows)
        for t, row in zip(self.stages, rows, strict=True):
            values |= {self.r[t, i].name: 1.0 for i in row}
            values |= {self.s[t, k].name: 1.0 for k in there[t]}
            for k in self.carried[t]:
                kept = float(k in there.get(t + 1, set()))
                for i in reversed(self._readers(t, k)):
                    if (t, k, i) in self.k:
                        kept = max(kept, values[self.r[t, i].name])
                        values[self.k[t, k, i].name] = kept
        for t in self.stages:
            live = sum(self.size[k] for k in there[t])
            for i in range(self.end):
                if (t, i) in self.u:
                    live += sum(values[v.name] * x for v, x in self._changes(t, i))
                    values[self.u[t, i].name] = max(0.0, live)
        return values

    def _stored(self, rows: Sequence[Sequence[int]]) -> dict[int, set[int]]:
        """For each stage the tensors that it finds and that it or a later one reads."""
        stored: dict[int, set[int]] = {}
        later: set[int] = set()
        for t, row in zip(reversed(self.stages), reversed(rows), strict=True):
            for i in (t, *sorted(row, reverse=True)):
                later -= set(self.base.outputs[i])
                later |= {k for k in self.base.inputs[i] if self.base.source[k] < self.end}
            stored[t] = set(later)
        return stored


def merged(terms: Sequence[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Return `terms` with each variable once, and none that cancel out."""
    sums: dict[str, tuple[Any, float]] = {}
    for variable, factor in terms:
        sums[variable.name] = (variable, sums.get(variable.name, (variable, 0.0))[1] + factor)
    return [term for term in sums.values() if term[1]]
