"""The MILP of Checkmate: which ops run, and which tensors are kept, in each stage.

Source: Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization"
    (MLSys 2020), section 4: equations 1b, 1c, 2, 3, 5 and, for the stages, 8a to 8c.
Deviations: FREE is continuous and only bounded from above; freeing helps, so its lower bounds
    (7b) never bind, and only R and S are binary. At most one FREE a tensor and stage, and none
    with S[t+1] (theorem 4.1), is a cut. S belongs to tensors and R to ops, so that an op may
    have several outputs; S[t, k] + R[t, producer of k] <= 1, because nothing reads the older
    instance. Pinned tensors are constants; workspace is in the row of its op; an op that must
    not run twice has no R. The start is the greedy replay's schedule.
Exact?: In its own space only: between two first runs ops are recomputed in captured order, each
    at most once. The bound in that space is `model_bound_ns`. It is no bound for every schedule
    of the captured order: let a stage need A = f(a) and C = g(c), with a, c large and small A,
    C, in the order a, c, A, C. In captured order a and c are on the device together; running
    a, A, c, C is not expressible, though it may be the only way within the budget. So
    `proven_bound_ns` comes from the relaxation in `_stage_bound`, which has no such order, and
    OPTIMAL is claimed where the schedule meets it. A model without solution proves nothing.
Complexity: O(ops^2) binaries, O(ops x reads) rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Drop, Schedule, keeps_order, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver
from memplan.planner.verify import is_valid
from memplan.solvers._milp import CostScale, Outcome, add_row, solve_milp
from memplan.solvers._stage_bound import StageBound, stage_bound
from memplan.solvers._stages import Stages

_BUILT_PER_S = 5_000
"""Decisions whose rows are built in a second, cautiously: PuLP knows no time limit."""


@dataclass(frozen=True, slots=True)
class Checkmate:
    """The MILP, started from a schedule.

    Attributes:
        start: A schedule to start from, ignored unless valid and in captured order; None to ask
            the greedy replay.
        prove: Whether to spend part of the time on `proven_bound_ns`.
        max_ops: Larger graphs are refused with UNKNOWN.
    """

    name: ClassVar[str] = "checkmate"
    kind: ClassVar[str] = "exact"
    source: ClassVar[str] = "Jain et al., Checkmate (MLSys 2020), MILP with FREE continuous"

    start: Schedule | None = field(default=None, repr=False)
    prove: bool = True
    max_ops: int = 250

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best schedule in stages, or the start where that is better."""
        if refusal := below_limit(problem):
            return refusal
        graph, began = problem.graph, time.monotonic()
        best = self._first(problem, limits)
        if best is not None and simulate(graph, best).time_ns == graph.time_ns:
            return Solution(status=Status.OPTIMAL, schedule=best, proven_bound_ns=graph.time_ns)
        if len(graph.ops) > self.max_ops:
            return _answer(problem, best, f"{len(graph.ops)} ops are more than {self.max_ops}")
        stages = Stages(graph)

        def left_s() -> float:
            return limits.time_s - (time.monotonic() - began)

        if left_s() < stages.decisions / _BUILT_PER_S:
            return _answer(problem, best, f"no time to build {stages.decisions:,} variables")
        proven = StageBound(bound_ns=graph.time_ns)
        if self.prove:
            proven = stage_bound(problem, stages, left_s() / 3, limits)
        if proven.infeasible:
            return _answer(problem, None, "", proven)
        if best is not None and simulate(graph, best).time_ns <= proven.bound_ns:
            return _answer(problem, best, "", proven)
        model = _Model(problem, stages)
        result = solve_milp(
            model.problem, left_s(), limits.threads, limits.seed, model.start_values(best)
        )
        if result.outcome is Outcome.INFEASIBLE:
            return _answer(problem, best, "no schedule in stages fits the budget", proven)
        model_bound_ns = graph.time_ns + model.scale.bound_ns(result.bound)
        if result.outcome is not Outcome.UNKNOWN:
            found = model.schedule(result.values)
            if result.outcome is Outcome.OPTIMAL:
                model_bound_ns = simulate(graph, found).time_ns
            best = _cheaper(problem, best, found)
        return _answer(problem, best, "", proven, model_bound_ns)

    def _first(self, problem: Problem, limits: Limits) -> Schedule | None:
        if self.start is not None:
            usable = keeps_order(self.start) and is_valid(problem, self.start)
            return self.start if usable else None
        quick = Limits(time_s=limits.time_s / 4, seed=limits.seed, threads=limits.threads)
        return load_solver("greedy").solve(problem, quick).schedule


def _answer(
    problem: Problem,
    best: Schedule | None,
    reason: str,
    proven: StageBound | None = None,
    model_bound_ns: int | None = None,
) -> Solution:
    proven = proven or StageBound(bound_ns=problem.graph.time_ns)
    status, minimum_bytes = Status.UNKNOWN, None
    if proven.infeasible:
        status, minimum_bytes = Status.INFEASIBLE, problem.budget_bytes + 1
        reason = "the relaxation of all schedules of the captured order has no solution"
    elif best is not None:
        time_ns = simulate(problem.graph, best).time_ns
        status = Status.OPTIMAL if time_ns <= proven.bound_ns else Status.FEASIBLE
    elif not reason:
        reason = "no schedule found in time"
    return Solution(
        status=status,
        schedule=best,
        proven_bound_ns=proven.bound_ns,
        model_bound_ns=model_bound_ns,
        minimum_bytes=minimum_bytes,
        reason=reason,
    )


def _cheaper(problem: Problem, best: Schedule | None, new: Schedule) -> Schedule | None:
    """Return the better of the two; `new` may pass the budget by the MILP's tolerance."""
    timeline = simulate(problem.graph, new)
    if timeline.peak_bytes > problem.budget_bytes:
        return best
    if best is not None and simulate(problem.graph, best).time_ns <= timeline.time_ns:
        return best
    return new


class _Model:
    """The variables R, S, FREE and live bytes of one problem, in the paper's letters.

    R[t, i]: op i runs again in stage t. S[t, k]: tensor k is there when stage t begins.
    F[t, k, i]: k is freed right after op i of stage t. U[t, i]: movable bytes after op i.
    """

    def __init__(self, problem: Problem, stages: Stages) -> None:
        import pulp

        self.stages = stages
        self.graph, self.budget_bytes = problem.graph, problem.budget_bytes
        self.scale = CostScale.of([op.time_ns for op in self.graph.ops])
        # Large coefficients cost accuracy: bytes as a share of the budget, unless small.
        self.bytes_unit = 1.0 if self.budget_bytes <= 10**5 else self.budget_bytes / 1e4
        self.problem = pulp.LpProblem("checkmate", pulp.LpMinimize)
        ops = range(len(self.graph.ops))
        self.r = {
            (t, i): self.problem.add_variable(f"R_{t}_{i}", 0, 1, "Binary")
            for t in ops
            for i in stages.again[t]
        }
        self.s = {
            (t, k): self.problem.add_variable(f"S_{t}_{k}", 0, 1, "Binary")
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
                before = [(self.s[t - 1, k], -1.0)]
                if (t - 1, source[k]) in self.r:
                    before.append((self.r[t - 1, source[k]], -1.0))
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
            frees = []
            for at, i in enumerate(ops):
                free = self.f[t, k, i] = self.problem.add_variable(f"F_{t}_{k}_{i}", 0, 1)
                self._row([(free, 1.0), (self.r[t, i], -1.0)], "<=", 0.0)
                for j in ops[at + 1 :]:
                    self._row([(free, 1.0), (self.r[t, j], 1.0)], "<=", 1.0)
                frees.append((free, 1.0))
            if (t + 1, k) in self.s:
                frees.append((self.s[t + 1, k], 1.0))
            self._row(frees, "<=", 1.0)

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
