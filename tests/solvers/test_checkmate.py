from __future__ import annotations

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph import Graph
from memplan.planner.limits import lower_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.planner.verify import verify
from memplan.solvers.exhaustive import Exhaustive
from memplan.solvers.programs._milp import Outcome, solve_milp
from memplan.solvers.programs._stage_bound import stage_bound
from memplan.solvers.programs._stage_model import StageModel
from memplan.solvers.programs._stages import Stages
from memplan.solvers.programs.checkmate import Checkmate
from tests.graphs import chain, detour, tight_problems, unet, unit_chain


def solve(graph: Graph, budget_bytes: int, solver: Checkmate | None = None) -> Solution:
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    solution = (solver or Checkmate()).solve(problem, Limits(time_s=400))
    if solution.schedule is not None:
        verify(problem, solution.schedule)
    return solution


@pytest.mark.parametrize(
    ("length", "budget_bytes", "extra_ns"),
    [
        (8, 4, 9),
        (10, 4, 14),
        pytest.param(12, 4, 20, marks=pytest.mark.slow),
        pytest.param(20, 16, 6, marks=pytest.mark.slow),
    ],
)
def test_published_optima_of_the_unit_chain(length: int, budget_bytes: int, extra_ns: int) -> None:
    graph = unit_chain(length)
    solution = solve(graph, budget_bytes)
    assert solution.schedule is not None
    assert simulate(graph, solution.schedule).time_ns == graph.time_ns + extra_ns
    assert solution.model_bound_ns == graph.time_ns + extra_ns or (
        solution.proven_bound_ns == graph.time_ns + extra_ns
    )


def test_a_unet_keeps_the_small_skips() -> None:
    # The optimum of an independent search over all schedules of the order.
    graph = unet(1)
    for budget_bytes in range(lower_limit(graph)[0], 50, 4):
        best = Exhaustive(fixed_order=True).solve(
            Problem(graph=graph, budget_bytes=budget_bytes), Limits()
        )
        solution = solve(graph, budget_bytes)
        assert (solution.schedule is None) == (best.schedule is None)
        if solution.schedule is not None:
            assert simulate(graph, solution.schedule).time_ns == best.proven_bound_ns


def test_an_empty_model_proves_nothing() -> None:
    # Stages have no schedule for `detour` in 12 bytes, others do: the start may be one.
    unaided = solve(detour(), 12, Checkmate(start=()))
    assert unaided.status is Status.UNKNOWN
    assert "no schedule in stages" in unaided.reason
    problem = Problem(graph=detour(), budget_bytes=12)
    best = Exhaustive(fixed_order=True).solve(problem, Limits())
    assert solve(detour(), 12, Checkmate(start=best.schedule)).schedule == best.schedule


def test_a_start_is_never_made_worse() -> None:
    graph = unit_chain(10)
    start = schedule_of(graph, [*range(11), *range(9), *range(11, 21)])
    problem = Problem(graph=graph, budget_bytes=simulate(graph, start).peak_bytes)
    solution = Checkmate(start=start).solve(problem, Limits(time_s=0.5))
    assert solution.schedule is not None
    assert simulate(graph, solution.schedule).time_ns <= simulate(graph, start).time_ns


def test_large_graphs_are_left_to_the_start() -> None:
    solution = solve(chain(5), 5, Checkmate(max_ops=3))
    assert solution.status is Status.FEASIBLE
    assert "11 ops are more than 3" in solution.reason


def test_no_time_is_no_proof() -> None:
    solution = Checkmate().solve(Problem(graph=unit_chain(40), budget_bytes=6), Limits(time_s=0.0))
    assert solution.status in (Status.UNKNOWN, Status.FEASIBLE)


@settings(deadline=None, max_examples=200)
@given(tight_problems())
def test_it_is_the_optimum_over_stages(problem: Problem) -> None:
    graph = problem.graph
    staged = Exhaustive(staged=True).solve(problem, Limits())
    unaided = Checkmate(start=()).solve(problem, Limits())
    if staged.schedule is None:
        assert unaided.schedule is None
        return
    assert unaided.schedule is not None
    verify(problem, unaided.schedule)
    assert simulate(graph, unaided.schedule).time_ns == staged.proven_bound_ns
    best = Exhaustive(fixed_order=True).solve(problem, Limits())
    assert unaided.proven_bound_ns <= best.proven_bound_ns
    if unaided.status is Status.OPTIMAL:
        assert unaided.proven_bound_ns == best.proven_bound_ns


@settings(deadline=None, max_examples=100)
@given(tight_problems())
def test_the_bound_holds_for_every_schedule_of_the_order(problem: Problem) -> None:
    best = Exhaustive(fixed_order=True).solve(problem, Limits())
    bound = stage_bound(problem, Stages(problem.graph), 10.0, Limits())
    if best.schedule is None:
        return
    assert not bound.infeasible
    assert bound.bound_ns <= best.proven_bound_ns


@pytest.mark.parametrize(("paper", "bound_ns"), [(True, 22), (False, 23)])
def test_the_relaxation_of_both_formulations(paper: bool, bound_ns: int) -> None:
    """The unit chain of 17 ops in 4 bytes takes 26; costs are whole, so bounds are rounded up."""
    problem = Problem(graph=unit_chain(8), budget_bytes=4)
    for relaxed, expected_ns in ((True, bound_ns), (False, 26)):
        model = StageModel(problem, Stages(problem.graph), relaxed=relaxed, paper=paper)
        result = solve_milp(model.problem, 60.0, 1, 0)
        assert result.outcome is Outcome.OPTIMAL
        assert problem.graph.time_ns + model.scale.bound_ns(result.bound) == expected_ns


@settings(deadline=None, max_examples=40)
@given(tight_problems(max_ops=8))
def test_both_formulations_have_the_same_optimum(problem: Problem) -> None:
    ours, paper = (Checkmate(start=(), paper=p).solve(problem, Limits()) for p in (False, True))
    assert (ours.schedule is None) == (paper.schedule is None)
    if ours.schedule is not None and paper.schedule is not None:
        times_ns = [simulate(problem.graph, s).time_ns for s in (ours.schedule, paper.schedule)]
        assert times_ns[0] == times_ns[1]
