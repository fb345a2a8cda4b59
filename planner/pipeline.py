"""From a graph and a budget to a plan that the judge accepted."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

from memplan.errors import InfeasibleBudget, InvalidSchedule, SolverStopped
from memplan.graph_capture.graph import Graph
from memplan.planner.advice import advice
from memplan.planner.limits import lower_limit
from memplan.planner.memory_use import peak_rss_bytes
from memplan.planner.minimum import MinimumBudget, minimum_budget, quick
from memplan.planner.plan import Plan
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule, schedule_of, sequence_of, swaps_in
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Solver, Status, load_solver
from memplan.planner.solver_options import solver_spec
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify
from memplan.units import format_bytes, parse_budget

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def make_plan(
    graph: Graph,
    budget: str | int,
    *,
    solver: str = "auto",
    options: Mapping[str, Any] | None = None,
    limits: Limits = Limits(),  # noqa: B008  frozen, so one object can serve every call
    provenance: Mapping[str, str] = _NOTHING,
    tiers: Sequence[Tier] = (),
) -> Plan:
    """Plan `graph` so that its peak stays within `budget` at the least extra time.

    Args:
        graph: The training step.
        budget: Bytes, a size such as `"8GB"`, a share of the unplanned peak such as `"50%"`,
            or `"min"`: the smallest budget a schedule is found for.
        solver: Name of an installed solver, with options or without: `rotor:slots=200`.
        options: The solver's options by name.
        limits: Time, threads and seed. The search for the smallest budget, where the budget is
            `"min"` or cannot be met, takes up to `time_s` more. Both that search and the solver
            at the smallest budget get less time on small graphs, see `minimum.quick`.
        provenance: What else the plan should remember; goes before the graph's own.
        tiers: Where tensors may be moved to.

    Raises:
        BudgetSyntaxError: The budget cannot be read.
        UnknownSolver: No installed package offers the solver.
        UsageError: The solver has no such option.
        InfeasibleBudget: It is proven that no schedule fits.
        SolverStopped: The solver found nothing, which proves nothing.
        InvalidSchedule: The judge refused the solver's schedule: a bug in the solver.
    """
    question = _ask(graph, budget, limits, tuple(tiers))
    chosen = load_solver(solver, **(options or {}))
    options = {**solver_spec(solver)[1], **(options or {})}
    if question.problem.budget_bytes >= question.unplanned_peak_bytes:
        answer = _keep_everything(question)
    else:
        if question.problem.budget_bytes < question.limit_bytes:
            raise _infeasible(question, question.limit_bytes)
        answer = _solve(question, _started(chosen, question.minimum))
    return Plan(
        graph=graph,
        schedule=answer.schedule,
        budget_bytes=question.problem.budget_bytes,
        status=answer.status,
        solver=answer.solver,
        proven_bound_ns=answer.proven_bound_ns,
        model_bound_ns=answer.model_bound_ns,
        limit_bytes=question.limit_bytes,
        solve_seconds=answer.seconds,
        solver_memory_bytes=answer.memory_bytes,
        provenance=_provenance(graph, limits, options, provenance),
        notes=(*question.notes, *answer.notes),
        tiers=question.problem.tiers,
    )


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is known before the solver starts."""

    problem: Problem
    limits: Limits
    keep_all: Schedule
    unplanned_peak_bytes: int
    limit_bytes: int
    limit_op: int
    minimum: MinimumBudget | None
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What the pipeline believes of a solver's answer."""

    schedule: Schedule
    status: Status
    solver: str
    proven_bound_ns: int
    model_bound_ns: int | None = None
    seconds: float = 0.0
    memory_bytes: int = 0
    notes: tuple[str, ...] = ()


def _ask(graph: Graph, budget: str | int, limits: Limits, tiers: tuple[Tier, ...]) -> _Question:
    keep_all = schedule_of(graph, range(len(graph.ops)))
    unplanned_peak_bytes = simulate(graph, keep_all).peak_bytes
    limit_bytes, limit_op = lower_limit(graph)
    minimum: MinimumBudget | None = None
    notes: tuple[str, ...] = ()
    if isinstance(budget, str) and budget.strip().lower() == "min":
        minimum = minimum_budget(graph, limits=limits, tiers=tiers)
        budget_bytes = minimum.feasible_bytes
        notes = (_minimum_note(minimum),)
    else:
        budget_bytes = parse_budget(budget, unplanned_peak_bytes, 0)
    return _Question(
        problem=Problem(graph=graph, budget_bytes=budget_bytes, tiers=tiers),
        limits=limits,
        keep_all=keep_all,
        unplanned_peak_bytes=unplanned_peak_bytes,
        limit_bytes=limit_bytes if minimum is None else max(limit_bytes, minimum.limit_bytes),
        limit_op=limit_op,
        minimum=minimum,
        notes=notes,
    )


def _minimum_note(minimum: MinimumBudget) -> str:
    found = f"{format_bytes(minimum.feasible_bytes)} is the smallest budget"
    if minimum.feasible_bytes == minimum.limit_bytes:
        return f"{found} there is."
    return (
        f"{found} a schedule was found for; none below {format_bytes(minimum.limit_bytes)} "
        "can exist."
    )


def _keep_everything(question: _Question) -> _Answer:
    budget_bytes, peak_bytes = question.problem.budget_bytes, question.unplanned_peak_bytes
    verify(question.problem, question.keep_all)
    return _Answer(
        schedule=question.keep_all,
        status=Status.OPTIMAL,
        solver="keep-all",
        proven_bound_ns=question.problem.graph.time_ns,
        notes=(
            f"The step takes {format_bytes(peak_bytes)} without a plan, which fits "
            f"{format_bytes(budget_bytes)}: nothing is recomputed.",
        ),
    )


def _started(solver: Solver, minimum: MinimumBudget | None) -> Solver:
    """Let the solver start from the schedule of the search for the smallest budget, if it can."""
    options = {option.name for option in fields(solver)}  # type: ignore[arg-type]
    if minimum is None or "start" not in options:
        return solver
    return replace(solver, start=minimum.schedule)  # type: ignore[type-var]


def _solve(question: _Question, solver: Solver) -> _Answer:
    problem, limits = question.problem, question.limits
    if question.minimum is not None:
        limits = quick(problem.graph, limits)
    started, before_bytes = time.perf_counter(), peak_rss_bytes()
    solution = solver.solve(problem, limits)
    seconds = time.perf_counter() - started
    if solution.schedule is not None:
        schedule = _judged(problem, solution.schedule, solver)
        answer = _believe(problem, solution, schedule, solver, seconds)
        return replace(answer, memory_bytes=peak_rss_bytes() - before_bytes)
    if question.minimum is not None:
        # The search that set the budget left a schedule for it: "min" always has a plan.
        return _Answer(
            schedule=_judged(problem, question.minimum.schedule, solver),
            status=Status.FEASIBLE,
            solver=solver.name,
            proven_bound_ns=problem.graph.time_ns,
            seconds=seconds,
            notes=(
                f"Solver {solver.name!r} found no schedule{_because(solution)}; this is the one "
                "that the search for the smallest budget found.",
            ),
        )
    raise _nothing_found(question, solution, solver)


def _judged(problem: Problem, schedule: Schedule, solver: Solver) -> Schedule:
    """Return `schedule`, or a tidier one of the same ops; refuse an invalid one."""
    try:
        verify(problem, schedule)
    except InvalidSchedule as error:
        raise InvalidSchedule(
            error.step, f"{error.rule} (a bug in solver {solver.name!r}; please report it)"
        ) from None
    if swaps_in(schedule):
        return schedule
    tidy = schedule_of(problem.graph, sequence_of(schedule))
    if tidy == schedule:
        return schedule
    try:
        verify(problem, tidy)
    except InvalidSchedule:
        return schedule
    before, after = simulate(problem.graph, schedule), simulate(problem.graph, tidy)
    return tidy if after.peak_bytes <= before.peak_bytes else schedule


def _believe(
    problem: Problem, solution: Solution, schedule: Schedule, solver: Solver, seconds: float
) -> _Answer:
    """Keep only those claims about bounds that do not contradict the schedule itself."""
    time_ns = simulate(problem.graph, schedule, problem.tiers).time_ns
    # Every op runs at least once: a bound that needs no solver.
    bound_ns, status = max(solution.proven_bound_ns, problem.graph.time_ns), Status.FEASIBLE
    notes: tuple[str, ...] = (solution.reason,) if solution.reason else ()
    if bound_ns > time_ns:
        bound_ns = problem.graph.time_ns
        notes += (
            f"Solver {solver.name!r} claims that no schedule takes less than "
            f"{solution.proven_bound_ns:,} ns, but its own takes {time_ns:,} ns; the claim "
            "is left out.",
        )
    elif solution.status is Status.OPTIMAL or bound_ns == time_ns:
        bound_ns, status = time_ns, Status.OPTIMAL
    return _Answer(
        schedule=schedule,
        status=status,
        solver=solver.name,
        proven_bound_ns=bound_ns,
        model_bound_ns=solution.model_bound_ns,
        seconds=seconds,
        notes=notes,
    )


def _nothing_found(
    question: _Question, solution: Solution, solver: Solver
) -> InfeasibleBudget | SolverStopped:
    problem, budget_bytes = question.problem, question.problem.budget_bytes
    minimum = minimum_budget(problem.graph, limits=question.limits, tiers=problem.tiers)
    if minimum.feasible_bytes <= budget_bytes:
        return SolverStopped(
            f"solver {solver.name!r} found no schedule within {budget_bytes:,} bytes"
            f"{_because(solution)}; one is known that takes {minimum.feasible_bytes:,} bytes, "
            "so try solver 'auto' or more time",
            feasible_bytes=minimum.feasible_bytes,
            limit_bytes=minimum.limit_bytes,
        )
    if solution.status is Status.INFEASIBLE:
        # INFEASIBLE is a proof about this budget, so the limit is above it.
        return _infeasible(question, max(solution.minimum_bytes or 0, budget_bytes + 1), minimum)
    return SolverStopped(
        f"solver {solver.name!r} found no schedule within {budget_bytes:,} bytes"
        f"{_because(solution)}; that proves nothing: more time may help. "
        f"The smallest budget known to be feasible is {minimum.feasible_bytes:,} bytes, "
        f"and none below {minimum.limit_bytes:,} can be",
        feasible_bytes=minimum.feasible_bytes,
        limit_bytes=minimum.limit_bytes,
    )


def _because(solution: Solution) -> str:
    return f" ({solution.reason})" if solution.reason else ""


def _infeasible(
    question: _Question, limit_bytes: int, minimum: MinimumBudget | None = None
) -> InfeasibleBudget:
    graph = question.problem.graph
    tiers = question.problem.tiers
    minimum = minimum or minimum_budget(graph, limits=question.limits, tiers=tiers)
    at = question.limit_op
    bound_bytes = max(limit_bytes, minimum.limit_bytes)
    return InfeasibleBudget(
        question.problem.budget_bytes,
        bound_bytes,
        feasible_bytes=minimum.feasible_bytes,
        # A limit from a longer proof than `lower_limit` belongs to no single op.
        op=graph.ops[at].name if at >= 0 and bound_bytes == question.limit_bytes else "",
        top_tensors=_largest_at(graph, at),
        advice=advice(graph, at, question.problem.budget_bytes),
    )


def _largest_at(graph: Graph, at: int, count: int = 5) -> list[tuple[str, int]]:
    """Name and bytes of the largest tensors that op `at` needs, or that must stay by then."""
    needed: set[int] = {*graph.ops[at].inputs, *graph.ops[at].outputs} if at >= 0 else set()
    for t, made in enumerate(graph.producer):
        if graph.tensors[t].pinned and (made is None or made <= at):
            needed.add(t)
    largest = sorted(needed, key=lambda t: (-graph.tensors[t].nbytes, t))
    return [(graph.tensors[t].name, graph.tensors[t].nbytes) for t in largest[:count]]


def _provenance(
    graph: Graph,
    limits: Limits,
    options: Mapping[str, Any] | None,
    given: Mapping[str, str],
) -> Mapping[str, str]:
    """Return where the plan comes from; keys in the order of the alphabet."""
    known = {
        "gap": str(limits.gap),
        "graph_sha256": hashlib.sha256(graph.to_json().encode()).hexdigest(),
        "memplan": version("memplan"),
        "seed": str(limits.seed),
        "solver_options": json.dumps(dict(options or {}), sort_keys=True, default=str),
        "threads": str(limits.threads),
        "time_limit_s": str(limits.time_s),
    }
    merged = {**graph.provenance, **given, **known}
    return MappingProxyType(dict(sorted(merged.items())))
