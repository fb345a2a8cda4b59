"""A bound on the time of every schedule of the captured order, from a relaxed stage model.

Stage t begins after op t - 1 has run for the first time, and the drops after it, and ends when
op t has. Of a schedule only this is looked at: R[t, i], whether op i runs again in stage t at
all, and S[t, k], whether tensor k is there when stage t begins. For these hold, whatever the order
and the number of runs within the stage:

* k is there at the end only if it was at the beginning or its producer runs in the stage;
* an op that runs finds each input at the beginning, or its producer runs in the stage;
* a tensor whose producer does not run in the stage, and that is there when it ends or that op t
  reads, is there throughout (Y), so beside every op that runs in the stage;
* op t runs last, so what is there when the stage ends is there while op t runs.

Every schedule whose first runs keep the captured order satisfies these rows, hence the optimum
of the MILP, and any dual bound of it, holds for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memplan.planner.problem import Limits, Problem
from memplan.solvers.programs._milp import CostScale, Outcome, add_row, solve_milp
from memplan.solvers.programs._stages import Stages


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBound:
    """What the relaxation proves.

    Attributes:
        bound_ns: No schedule of the captured order within the budget is faster.
        infeasible: No schedule of the captured order fits the budget.
    """

    bound_ns: int
    infeasible: bool = False


def stage_bound(problem: Problem, stages: Stages, time_s: float, limits: Limits) -> StageBound:
    """Solve the relaxation for at most `time_s`; its dual bound counts when time runs out."""
    graph = problem.graph
    scale = CostScale.of([op.time_ns for op in graph.ops])
    model, again = _model(problem, stages, scale)
    result = solve_milp(model, time_s, limits.threads, limits.seed)
    if result.outcome is Outcome.INFEASIBLE:
        return StageBound(bound_ns=graph.time_ns, infeasible=True)
    if result.outcome is Outcome.OPTIMAL:
        # Its runs in whole nanoseconds: no rounding of the objective.
        extra_ns = sum(
            graph.ops[i].time_ns for (_, i), x in again.items() if result.values[x.name] > 0.5
        )
        return StageBound(bound_ns=graph.time_ns + extra_ns)
    return StageBound(bound_ns=graph.time_ns + scale.bound_ns(result.bound))


def _model(
    problem: Problem, stages: Stages, scale: CostScale
) -> tuple[Any, dict[tuple[int, int], Any]]:
    """Return the MILP and its variables R."""
    import pulp

    graph = problem.graph
    model = pulp.LpProblem("stage_bound", pulp.LpMinimize)
    r = {
        (t, i): model.add_variable(f"R_{t}_{i}", 0, 1, "Binary")
        for t in range(len(graph.ops))
        for i in stages.again[t]
    }
    s = {
        (t, k): model.add_variable(f"S_{t}_{k}", 0, 1, "Binary")
        for t in range(len(graph.ops))
        for k in stages.carried[t]
    }
    model += pulp.LpAffineExpression(
        [(x, graph.ops[i].time_ns / scale.unit_ns) for (_, i), x in r.items()]
    )
    for t in range(len(graph.ops)):
        _availability(model, stages, r, s, t)
        _memory(model, problem, stages, r, s, t)
    return model, r


def _availability(model: Any, stages: Stages, r: Any, s: Any, t: int) -> None:
    source = stages.source
    for k in stages.carried[t]:
        if source[k] < t - 1:
            before = [(s[t - 1, k], -1.0)]
            if (t - 1, source[k]) in r:
                before.append((r[t - 1, source[k]], -1.0))
            add_row(model, [(s[t, k], 1.0), *before], "<=", 0.0)
    for i in (*stages.again[t], t):
        runs = [] if i == t else [(r[t, i], 1.0)]
        for k in stages.inputs[i]:
            there = [(s[t, k], -1.0)]
            if (t, source[k]) in r:
                there.append((r[t, source[k]], -1.0))
            add_row(model, [*runs, *there], "<=", -1.0 if i == t else 0.0)


def _memory(model: Any, problem: Problem, stages: Stages, r: Any, s: Any, t: int) -> None:
    # Large coefficients cost accuracy: bytes as a share of the budget, unless small.
    unit = 1.0 if problem.budget_bytes <= 10**5 else problem.budget_bytes / 1e4
    size = [tensor.nbytes / unit for tensor in problem.graph.tensors]
    room = (problem.budget_bytes - stages.fixed_bytes[t]) / unit
    add_row(model, [(s[t, k], size[k]) for k in stages.carried[t]], "<=", room)
    own = {*stages.inputs[t], *stages.outputs[t]}
    own_bytes = stages.running_bytes[t] / unit + sum(size[k] for k in stages.inputs[t])
    after = stages.carried[t + 1] if t + 1 < len(stages.carried) else ()
    beside = [(s[t + 1, k], size[k]) for k in after if k not in own]
    add_row(model, beside, "<=", room - own_bytes)
    if not stages.again[t]:
        return
    throughout = _throughout(model, stages, r, s, t)
    total = model.add_variable(f"Y_{t}", 0)
    parts = [(y, -size[k]) for k, y in throughout.items()]
    add_row(model, [(total, 1.0), *parts], "==", 0.0)
    for i in stages.again[t]:
        taken = stages.running_bytes[i] / unit + sum(size[k] for k in stages.inputs[i])
        own_y = [(throughout[k], -size[k]) for k in stages.inputs[i] if k in throughout]
        add_row(model, [(total, 1.0), *own_y, (r[t, i], taken)], "<=", room)


def _throughout(model: Any, stages: Stages, r: Any, s: Any, t: int) -> dict[int, Any]:
    """Add Y for each tensor that may be there throughout stage `t`."""
    throughout = {}
    for k in stages.carried[t]:
        read = k in stages.inputs[t]
        if not read and (t + 1, k) not in s:
            continue
        throughout[k] = y = model.add_variable(f"Y_{t}_{k}", 0, 1)
        terms = [(y, -1.0)]
        if (t, stages.source[k]) in r:
            terms.append((r[t, stages.source[k]], -1.0))
        if not read:
            terms.append((s[t + 1, k], 1.0))
        add_row(model, terms, "<=", -1.0 if read else 0.0)
    return throughout
