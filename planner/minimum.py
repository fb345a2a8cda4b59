"""The smallest budget for which a solver finds a schedule."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace

from memplan.graph_capture.graph import Graph
from memplan.planner.limits import lower_limit
from memplan.planner.moves import movable_gaps, place
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Solver, load_solver
from memplan.planner.tiers import Tier
from memplan.planner.verify import is_valid

_LEAST_S, _OPS_PER_S = 2.0, 40.0
"""The search gets `_LEAST_S`, and a second more for so many ops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumBudget:
    """The end of the search.

    Attributes:
        limit_bytes: Proven: no schedule has a smaller peak.
        feasible_bytes: The smallest peak that was found.
        schedule: It has exactly that peak.
    """

    limit_bytes: int
    feasible_bytes: int
    schedule: Schedule


def minimum_budget(
    graph: Graph,
    solver_name: str = "greedy",
    limits: Limits | None = None,
    tiers: tuple[Tier, ...] = (),
) -> MinimumBudget:
    """Search for the smallest budget between the proven limit and the unplanned peak.

    It ends within a thousandth of the peak, or when time is over. As a heuristic may
    fail where a smaller budget works, the answer is feasible but not proven to be the least.

    Args:
        graph: The step.
        solver_name: The solver that is asked. One that can look for the smallest peak itself is
            asked once, any other at one budget after the other, by bisection.
        limits: Of the whole search; small graphs get less, see `quick`.
        tiers: Where tensors may be moved to: everything is that helps, whatever time it takes.

    Raises:
        UnknownSolver: There is no such solver.
    """
    found = _without_moves(graph, solver_name, limits)
    return _with_moves(graph, found, tiers) if tiers else found


def _without_moves(graph: Graph, solver_name: str, limits: Limits | None) -> MinimumBudget:
    limits, solver = quick(graph, limits or Limits(), _OPS_PER_S), load_solver(solver_name)
    limit_bytes, _ = lower_limit(graph)
    plain = schedule_of(graph, range(len(graph.ops)))
    peak_bytes = simulate(graph, plain).peak_bytes
    start = MinimumBudget(limit_bytes=limit_bytes, feasible_bytes=peak_bytes, schedule=plain)
    if peak_bytes <= limit_bytes:
        return start
    if not any(option.name == "lowest" for option in fields(solver)):  # type: ignore[arg-type]
        return _bisect(graph, start, solver, limits)
    problem = Problem(graph=graph, budget_bytes=peak_bytes - 1)
    best = _lower(graph, start, load_solver(solver_name, lowest=True).solve(problem, limits))
    if solver_name != "greedy" or best.feasible_bytes <= limit_bytes:
        return best
    # Less may do in another order, where that is free.
    half = replace(limits, time_s=limits.time_s / 2)
    return _lower(graph, best, load_solver("reorder", lowest=True).solve(problem, half))


def _with_moves(graph: Graph, best: MinimumBudget, tiers: tuple[Tier, ...]) -> MinimumBudget:
    """Move all that is not read for a while, with and without recomputing; bisect the budget."""
    for sequence in (range(len(graph.ops)), sequence_of(best.schedule)):
        moves = movable_gaps(graph, sequence)
        refused_bytes = best.limit_bytes - 1
        while best.feasible_bytes - refused_bytes > max(1, best.feasible_bytes // 1000):
            middle = (refused_bytes + best.feasible_bytes) // 2
            problem = Problem(graph=graph, budget_bytes=middle, tiers=tiers)
            schedule = place(problem, sequence, moves).schedule
            if schedule is None or not is_valid(problem, schedule):
                refused_bytes = middle
                continue
            peak_bytes = simulate(graph, schedule, tiers).peak_bytes
            best = replace(best, feasible_bytes=peak_bytes, schedule=schedule)
    return best


def quick(graph: Graph, limits: Limits, ops_per_s: float = 100.0) -> Limits:
    """Return limits with as much time as the size of the graph deserves, or less."""
    time_s = _LEAST_S + len(graph.ops) / ops_per_s
    return replace(limits, time_s=min(limits.time_s, time_s))


def _bisect(graph: Graph, start: MinimumBudget, solver: Solver, limits: Limits) -> MinimumBudget:
    """Ask at one budget after the other; each schedule counts with its own peak."""
    deadline = time.monotonic() + limits.time_s
    best, refused_bytes, budget_bytes = start, start.limit_bytes - 1, start.limit_bytes
    while refused_bytes < budget_bytes < best.feasible_bytes:
        left_s = min(limits.time_s / 8, deadline - time.monotonic())
        if left_s <= 0:
            break
        asked = replace(limits, time_s=left_s)
        solution = solver.solve(Problem(graph=graph, budget_bytes=budget_bytes), asked)
        best = _lower(graph, best, solution)
        if solution.schedule is None:
            refused_bytes = budget_bytes
        if best.feasible_bytes - refused_bytes <= best.feasible_bytes // 1000:
            break
        budget_bytes = (refused_bytes + best.feasible_bytes) // 2
    return best


def _lower(graph: Graph, best: MinimumBudget, solution: Solution) -> MinimumBudget:
    """Return `best`, or what was found where its peak is smaller."""
    if solution.schedule is None:
        return best
    peak_bytes = simulate(graph, solution.schedule).peak_bytes
    if peak_bytes >= best.feasible_bytes:
        return best
    return replace(best, feasible_bytes=peak_bytes, schedule=solution.schedule)
