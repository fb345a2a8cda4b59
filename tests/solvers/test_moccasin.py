"""Retention intervals against the staged oracle and the published optima."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph_files import read_graph
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.verify import verify
from memplan.solvers.exhaustive import Exhaustive
from memplan.solvers.programs.moccasin import Moccasin
from tests.graphs import INSTANCES, detour, tight_problems, unit_chain

KEEP_START = schedule_of(unit_chain(1), ())
"""No valid start: the model has to find a schedule without a hint."""


@settings(deadline=None, max_examples=80)
@given(problem=tight_problems(max_ops=8))
def test_it_finds_the_best_schedule_in_stages_without_a_start(problem: Problem) -> None:
    graph = problem.graph
    oracle = Exhaustive(staged=True).solve(problem, Limits())
    solution = Moccasin(copies=6, start=KEEP_START).solve(problem, Limits(time_s=20.0))
    if oracle.schedule is None:
        assert solution.schedule is None
        return
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    best_ns = simulate(graph, oracle.schedule).time_ns
    assert simulate(graph, solution.schedule).time_ns == best_ns
    assert solution.model_bound_ns == best_ns


def test_what_stages_cannot_express_proves_nothing() -> None:
    """Only an order within a stage that is not the captured one fits: see `detour`."""
    problem = Problem(graph=detour(), budget_bytes=12)
    solution = Moccasin(start=KEEP_START).solve(problem, Limits())
    assert solution.status is Status.UNKNOWN
    assert solution.reason == "no schedule in intervals found"


@pytest.mark.parametrize(("length", "budget_bytes", "extra_ns"), [(8, 4, 9), (10, 4, 14)])
def test_a_tight_chain_needs_more_than_two_copies(
    length: int, budget_bytes: int, extra_ns: int
) -> None:
    """The start, which has as many runs as it takes, sets the number of copies."""
    problem = Problem(graph=unit_chain(length), budget_bytes=budget_bytes)
    solution = Moccasin().solve(problem, Limits(time_s=10.0))
    assert solution.schedule is not None
    assert simulate(problem.graph, solution.schedule).time_ns - problem.graph.time_ns <= extra_ns


@pytest.mark.slow
@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
@pytest.mark.parametrize(("percent", "known"), [(90, 0.789), (80, 2.296)])
def test_published_optima_of_a_random_layered_graph(percent: int, known: float) -> None:
    graph = read_graph(INSTANCES / "rl100.json")
    peak_bytes = simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes
    problem = Problem(graph=graph, budget_bytes=peak_bytes * percent // 100)
    solution = Moccasin().solve(problem, Limits(time_s=60.0))
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    time_ns = simulate(graph, solution.schedule).time_ns
    assert 100 * (time_ns / graph.time_ns - 1) == pytest.approx(known, abs=0.001)
    assert solution.model_bound_ns == time_ns
