from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph import Graph, Op, Phase, Tensor
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.planner.verify import verify
from memplan.solvers import _replay
from memplan.solvers._replay import Replay, Weights, Workload
from memplan.solvers._replay_kernel import walk
from memplan.solvers.exhaustive import Exhaustive
from memplan.solvers.greedy import Greedy
from tests.graphs import INSTANCES, chain, tight_problems, unit_chain


def solve(graph: Graph, budget_bytes: int, time_s: float = 20.0) -> Solution:
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    solution = Greedy().solve(problem, Limits(time_s=time_s))
    if solution.schedule is not None:
        verify(problem, solution.schedule)
    return solution


@pytest.mark.parametrize(("budget_bytes", "extra_ns"), [(6, 0), (5, 1), (4, 3)])
def test_chain_of_four(budget_bytes: int, extra_ns: int) -> None:
    # The optima of test_exhaustive.
    graph = chain(4)
    solution = solve(graph, budget_bytes)
    assert solution.schedule is not None
    assert simulate(graph, solution.schedule).time_ns == 9 + extra_ns


@pytest.mark.parametrize(
    ("length", "budget_bytes", "extra_ns"),
    [(8, 4, 9), (10, 4, 14), (12, 4, 20), (20, 16, 6), (40, 30, 12)],
)
def test_published_optima_of_the_unit_chain_within_a_quarter(
    length: int, budget_bytes: int, extra_ns: int
) -> None:
    graph = unit_chain(length)
    solution = solve(graph, budget_bytes)
    assert solution.schedule is not None
    found_ns = simulate(graph, solution.schedule).time_ns - graph.time_ns
    assert extra_ns <= found_ns <= 1.25 * extra_ns


def test_the_only_copy_of_a_random_draw_outlives_its_last_direct_reader() -> None:
    """`mask` cannot be drawn again; `y` is made from it and read at the end.

    wide takes 8 of 10 bytes: y (4) has to go, so mask (2) must stay although only y reads it.
    """
    graph = Graph(
        ops=(
            Op(name="draw", inputs=(), outputs=(0,), time_ns=1, recomputable=False),
            Op(name="y", inputs=(0,), outputs=(1,), time_ns=1),
            Op(name="wide", inputs=(), outputs=(2,), time_ns=1, workspace_bytes=4),
            Op(name="end", inputs=(1, 2), outputs=(), time_ns=1, phase=Phase.BACKWARD),
        ),
        tensors=(
            Tensor(name="mask", nbytes=2),
            Tensor(name="y", nbytes=4),
            Tensor(name="wide", nbytes=4),
        ),
    )
    solution = solve(graph, 10)
    assert solution.schedule is not None
    assert simulate(graph, solution.schedule).time_ns == 5


def test_it_stops_at_the_first_schedule_when_asked() -> None:
    graph = unit_chain(12)
    problem = Problem(graph=graph, budget_bytes=6)
    solution = Greedy(first_found=True).solve(problem, Limits())
    assert solution.status is Status.FEASIBLE
    assert solution.stats["replays"] == 1


def test_another_seed_is_another_search() -> None:
    graph = unit_chain(30)
    problem = Problem(graph=graph, budget_bytes=8)
    found = {Greedy(replays=20).solve(problem, Limits(seed=seed)).schedule for seed in range(4)}
    assert len(found) > 1


@settings(deadline=None, max_examples=200)
@given(tight_problems())
def test_what_it_finds_is_valid_and_no_better_than_the_optimum(problem: Problem) -> None:
    solution = Greedy(replays=30).solve(problem, Limits())
    if solution.schedule is None:
        return
    verify(problem, solution.schedule)
    best = Exhaustive(fixed_order=True).solve(problem, Limits())
    assert simulate(problem.graph, solution.schedule).time_ns >= best.proven_bound_ns


@pytest.mark.slow
@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
@pytest.mark.parametrize("name", ["monet_vgg16", "monet_unet", "monet_mobilenet", "monet_r50"])
def test_it_is_near_a_day_of_branch_and_bound(name: str) -> None:
    """Within half a point of overhead of the published MILP solutions, at every budget."""
    path = INSTANCES / f"{name}.json"
    graph = read_graph(path)
    for known in json.loads(path.read_text())["known"]:
        solution = solve(graph, known["budget"], time_s=8.0)
        assert solution.schedule is not None
        extra_ns = simulate(graph, solution.schedule).time_ns - known["cost"]
        assert extra_ns <= 0.005 * graph.time_ns


def test_plain_when_everything_fits() -> None:
    graph = chain(4)
    solution = solve(graph, 100)
    assert solution.status is Status.OPTIMAL
    assert solution.schedule == schedule_of(graph, range(len(graph.ops)))


def test_looking_at_the_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = unit_chain(20)
    workload = Workload(graph)

    def run() -> tuple[int, ...] | None:
        end = time.monotonic() + 60
        return Replay(workload, 8, Weights(), math.inf, 2000, end).run()

    at_once = run()
    looks: list[int] = []

    def counted(*asked: Any) -> int:
        looks.append(1)
        return walk(*asked)

    monkeypatch.setattr(_replay, "_FUEL", 1)
    monkeypatch.setattr(_replay, "walk", counted)
    assert run() == at_once
    assert at_once is not None
    assert len(at_once) > len(graph.ops)
    assert len(looks) > 10
