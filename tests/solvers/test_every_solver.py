"""One contract for every registered solver; a new one is tested by being registered."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields
from importlib import import_module

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph import Graph
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.limits import lower_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Solver, Status, load_solver, solver_entry_points
from memplan.planner.verify import verify
from memplan.solvers.exhaustive import Exhaustive
from tests.graphs import INSTANCES, chain, tight_problems, unet, unit_chain

NAMES = sorted(solver_entry_points())
WITHOUT_BUDGET = ("chen-greedy", "chen-sqrt", "min-cut")
"""Their plans keep less than everything by design, whatever the budget."""
SMALL = {"chain": chain(3), "unit chain": unit_chain(3), "unet": unet(1)}
INSTANCE_NAMES = (
    *("cm_cm1", "cm_cm2", "cm_mobilenet", "cm_segnet", "cm_unet", "cm_vgg16", "cm_vgg19"),
    *("monet_vgg16", "monet_unet", "monet_mobilenet", "monet_r50"),
    *("rl100", "rl250", "dtr/resnet32", "dtr/unet", "dtr/tv_densenet121"),
)


def solve(name: str, graph: Graph, budget_bytes: int, time_s: float = 10.0) -> Solution:
    """Solve and check everything that holds for any answer."""
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    solution = load_solver(name).solve(problem, Limits(time_s=time_s))
    found = solution.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert (solution.schedule is not None) == found
    assert "\n" not in solution.reason
    if solution.schedule is not None:
        verify(problem, solution.schedule)
        time_ns = simulate(graph, solution.schedule).time_ns
        assert solution.proven_bound_ns <= time_ns
        assert (solution.status is Status.OPTIMAL) == (solution.proven_bound_ns == time_ns)
    else:
        assert solution.reason
    if solution.status is Status.INFEASIBLE:
        assert solution.minimum_bytes is not None
        assert solution.minimum_bytes > budget_bytes
    return solution


def time_ns(graph: Graph, solution: Solution) -> float:
    if solution.schedule is None:
        return float("inf")
    return simulate(graph, solution.schedule).time_ns


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name: str) -> None:
    solver = load_solver(name)
    assert isinstance(solver, Solver)
    assert (solver.name, solver.kind in {"exact", "heuristic", "baseline"}) == (name, True)
    assert solver.source
    module = type(solver).__module__
    assert module.rsplit(".", 1)[1] == name.replace("-", "_")
    text = import_module(module).__doc__ or ""
    found = re.findall(r"^(Source|Deviations|Exact\?|Complexity):", text, re.MULTILINE)
    assert found == ["Source", "Deviations", "Exact?", "Complexity"]
    for option in fields(solver):  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            setattr(solver, option.name, None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("graph", SMALL.values(), ids=SMALL)
def test_budgets_from_too_small_to_plenty(name: str, graph: Graph) -> None:
    limit_bytes, _ = lower_limit(graph)
    plain = schedule_of(graph, range(len(graph.ops)))
    peak_bytes = simulate(graph, plain).peak_bytes
    refused = solve(name, graph, limit_bytes - 1)
    assert (refused.status, refused.minimum_bytes) == (Status.INFEASIBLE, limit_bytes)
    for budget_bytes in range(limit_bytes, peak_bytes):
        solve(name, graph, budget_bytes)
    roomy = solve(name, graph, peak_bytes)
    if name not in WITHOUT_BUDGET:
        assert roomy.status is Status.OPTIMAL
        assert time_ns(graph, roomy) == graph.time_ns


@pytest.mark.parametrize("name", NAMES)
def test_same_limits_same_answer(name: str) -> None:
    for graph in (unet(2), unit_chain(6)):
        budget_bytes = lower_limit(graph)[0] + 2
        first = solve(name, graph, budget_bytes, 30.0)
        assert solve(name, graph, budget_bytes, 30.0).schedule == first.schedule


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_ops(name: str) -> None:
    graph = Graph(ops=(), tensors=())
    assert solve(name, graph, 1).schedule == ()


@pytest.mark.parametrize("name", NAMES)
def test_it_prints_nothing(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    solve(name, unit_chain(4), 4)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(problem=tight_problems())
def test_no_solver_beats_the_oracle(name: str, problem: Problem) -> None:
    """And nobody who claims a proof for the captured order is beaten in it."""
    graph = problem.graph
    solution = solve(name, graph, problem.budget_bytes)
    any_order = Exhaustive().solve(problem, Limits())
    assert time_ns(graph, solution) >= time_ns(graph, any_order)
    in_order = time_ns(graph, Exhaustive(fixed_order=True).solve(problem, Limits()))
    if name == "exhaustive":
        return
    assert solution.proven_bound_ns <= in_order
    if solution.status is Status.INFEASIBLE:
        assert in_order == float("inf")


@pytest.mark.slow
@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
@pytest.mark.parametrize("instance", INSTANCE_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_published_instances(name: str, instance: str) -> None:
    graph = read_graph(INSTANCES / f"{instance}.json")
    plain = schedule_of(graph, range(len(graph.ops)))
    peak_bytes = simulate(graph, plain).peak_bytes
    for percent in (90, 80, 70):
        solve(name, graph, peak_bytes * percent // 100, time_s=1.0)
