"""What holds for every graph, by random small ones and the oracle that searches every schedule."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.errors import InfeasibleBudget, SolverStopped
from memplan.graph_capture.graph import Graph
from memplan.planner.limits import lower_limit
from memplan.planner.pipeline import make_plan
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import keeps_order, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status, load_solver, solver_entry_points
from memplan.planner.verify import is_valid, verify
from memplan.solvers.exhaustive import Exhaustive
from tests.graphs import _random_graph, random_graphs, tight_problems

QUICK = Limits(time_s=10)
REORDERING = {"auto", "reorder", "exhaustive", "fastsa", "olla", "swapadvisor"}
IN_ORDER = sorted(set(solver_entry_points()) - REORDERING)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw a random graph with any budget: below its limit, tight, or plenty."""
    graph = draw(random_graphs(max_ops=8))
    plain = schedule_of(graph, range(len(graph.ops)))
    most_bytes = simulate(graph, plain).peak_bytes + 1
    return Problem(graph=graph, budget_bytes=draw(st.integers(0, most_bytes)))


def components(graph: Graph) -> int:
    import networkx

    return int(networkx.number_weakly_connected_components(graph.networkx()))


def test_random_graphs_have_every_feature() -> None:
    """The other tests here are worth what their graphs are."""
    drawn = [_random_graph(random.Random(seed), 10) for seed in range(200)]
    features = {
        "an op that must not run twice": lambda g: any(not op.recomputable for op in g.ops),
        "an op that has to run in order": lambda g: any(op.in_order for op in g.ops),
        "several outputs": lambda g: any(len(op.outputs) > 1 for op in g.ops),
        "no output": lambda g: any(not op.outputs for op in g.ops),
        "no bytes": lambda g: any(t.nbytes == 0 for t in g.tensors),
        "no time": lambda g: any(op.time_ns == 0 for op in g.ops),
        "no time at all": lambda g: g.time_ns <= 2,
        "workspace": lambda g: any(op.workspace_bytes for op in g.ops),
        "pinned outputs": lambda g: any(g.tensors[t].pinned for op in g.ops for t in op.outputs),
        "several components": lambda g: components(g) > 1,
        "a backward phase": lambda g: g.boundary < len(g.ops),
    }
    rare = {"no time at all": 0}
    for name, has in features.items():
        assert sum(map(has, drawn)) >= rare.get(name, 20), name


@pytest.mark.parametrize("name", sorted(solver_entry_points()))
@settings(deadline=None, max_examples=120)
@given(problem=problems())
def test_a_solution_is_valid_and_a_refusal_is_right(name: str, problem: Problem) -> None:
    graph = problem.graph
    solution = load_solver(name).solve(problem, QUICK)
    oracle = Exhaustive().solve(problem, Limits())
    captured = Exhaustive(fixed_order=True).solve(problem, Limits())
    if solution.schedule is not None:
        verify(problem, solution.schedule)
        timeline = simulate(graph, solution.schedule)
        assert timeline.peak_bytes <= problem.budget_bytes
        assert oracle.status is Status.OPTIMAL
        assert timeline.time_ns >= oracle.proven_bound_ns
        if keeps_order(solution.schedule):
            assert timeline.time_ns >= captured.proven_bound_ns
        if solution.status is Status.OPTIMAL:
            best = (oracle if name == "exhaustive" else captured).proven_bound_ns
            assert timeline.time_ns <= best or captured.schedule is None
    if solution.status is Status.INFEASIBLE:
        assert captured.schedule is None
        assert not is_valid(problem, schedule_of(graph, range(len(graph.ops))))


@pytest.mark.parametrize("name", IN_ORDER)
@settings(deadline=None, max_examples=60)
@given(problem=tight_problems(max_ops=8))
def test_first_runs_keep_the_captured_order(name: str, problem: Problem) -> None:
    solution = load_solver(name).solve(problem, QUICK)
    assert solution.schedule is None or keeps_order(solution.schedule)


@settings(deadline=None, max_examples=200)
@given(problems())
def test_a_plan_fits_and_an_error_is_true(problem: Problem) -> None:
    graph, budget_bytes = problem.graph, problem.budget_bytes
    if budget_bytes == 0:
        return
    oracle = Exhaustive().solve(problem, Limits())
    captured = Exhaustive(fixed_order=True).solve(problem, Limits())
    try:
        plan = make_plan(graph, budget_bytes, limits=QUICK)
    except (InfeasibleBudget, SolverStopped) as error:
        refused = error
    else:
        verify(problem, plan.schedule)
        assert plan.planned_peak_bytes <= budget_bytes
        assert plan.planned_time_ns >= oracle.proven_bound_ns
        assert plan.proven_bound_ns <= plan.planned_time_ns
        return
    if isinstance(refused, InfeasibleBudget):
        assert captured.schedule is None
        assert refused.budget_bytes == budget_bytes < refused.limit_bytes
    assert refused.feasible_bytes is not None
    assert refused.feasible_bytes >= lower_limit(graph)[0]
    at_least = Problem(graph=graph, budget_bytes=refused.feasible_bytes)
    assert Exhaustive().solve(at_least, Limits()).schedule is not None
