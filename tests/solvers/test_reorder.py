"""Other orders of the same ops: legal, no worse than the captured one, and never for steps."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.graph_capture.graph import Graph, Op, Tensor
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.pipeline import make_plan
from memplan.planner.plan import Plan
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import keeps_order, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.verify import verify
from memplan.solvers.auto import Auto
from memplan.solvers.exhaustive import Exhaustive
from memplan.solvers.orders._moved_order import Walk, lowest_order, moved
from memplan.solvers.orders._order import Rules, lifted, listed, places, reordered
from memplan.solvers.orders.reorder import Reorder
from tests.graphs import INSTANCES, random_graphs, tight_problems


def side_by_side(chains: int, time_ns: int = 1) -> Graph:
    """Return `chains` times wide (8 bytes) -> narrow (1 byte), all wide ones first, and a join.

    As captured all wide tensors are there together: 8 chains + 1 bytes. Chain by chain the most
    is the last one: a wide one, its narrow one, and the other narrow ones.
    """
    wide = [Op(name=f"w{i}", inputs=(), outputs=(i,), time_ns=time_ns) for i in range(chains)]
    narrow = [
        Op(name=f"n{i}", inputs=(i,), outputs=(chains + i,), time_ns=time_ns)
        for i in range(chains)
    ]
    joined = tuple(range(chains, 2 * chains))
    join = Op(name="join", inputs=joined, outputs=(2 * chains,), time_ns=time_ns)
    sizes = [8] * chains + [1] * chains + [0]
    return Graph(
        ops=(*wide, *narrow, join),
        tensors=tuple(Tensor(name=f"t{i}", nbytes=size) for i, size in enumerate(sizes)),
    )


def captured(graph: Graph) -> Graph:
    return replace(graph, provenance=MappingProxyType({"graph_hash": "0"}))


def test_chain_by_chain() -> None:
    graph = side_by_side(5)
    rules = Rules(graph)
    assert rules.peak_bytes(range(11)) == 41
    order = lowest_order(graph, 0, time.monotonic() + 60, seed=0)
    assert rules.peak_bytes(order) == 8 + 5


def test_the_order_alone_fits_and_is_optimal() -> None:
    problem = Problem(graph=side_by_side(5), budget_bytes=13)
    for solver in (Reorder(), Auto()):
        solution = solver.solve(problem, Limits(time_s=20))
        assert solution.status is Status.OPTIMAL
        assert solution.schedule is not None
        verify(problem, solution.schedule)
        assert not keeps_order(solution.schedule)
    assert Auto(reorder=False).solve(problem, Limits(time_s=20)).schedule != solution.schedule


def test_the_plan_says_that_the_order_is_another() -> None:
    plan = make_plan(side_by_side(5), 13, limits=Limits(time_s=20))
    assert plan.overhead == plan.gap == 0
    assert "another order than captured" in " ".join(plan.notes)
    assert Plan.from_json(plan.to_json()) == plan


def test_the_smallest_budget_counts_other_orders() -> None:
    assert make_plan(side_by_side(5), "min", limits=Limits(time_s=20)).planned_peak_bytes == 13


def test_steps_captured_from_a_model_keep_their_order() -> None:
    problem = Problem(graph=captured(side_by_side(5)), budget_bytes=25)
    refused = Reorder().solve(problem, Limits(time_s=20))
    assert (refused.status, refused.schedule) == (Status.UNKNOWN, None)
    assert "keep their order" in refused.reason
    solution = Auto().solve(problem, Limits(time_s=20))
    assert solution.schedule is not None
    assert keeps_order(solution.schedule)


@settings(deadline=None, max_examples=150)
@given(random_graphs())
def test_an_order_is_legal_and_no_worse_than_the_captured_one(graph: Graph) -> None:
    plain = simulate(graph, schedule_of(graph, range(len(graph.ops))))
    rules, rng, deadline = Rules(graph), random.Random(0), time.monotonic() + 60
    orders = [lowest_order(graph, 0, deadline, seed=1)]
    assert rules.peak_bytes(orders[0]) <= plain.peak_bytes
    orders.append(listed(rules, 0.6, 0.2, rng))
    orders.append(moved(rules, orders[1], 0, deadline, rng))
    assert rules.peak_bytes(orders[2]) <= rules.peak_bytes(orders[1])
    for order in orders:
        schedule = schedule_of(graph, order)
        peak_bytes = rules.peak_bytes(order)
        assert simulate(graph, schedule).peak_bytes == peak_bytes
        verify(Problem(graph=graph, budget_bytes=peak_bytes), schedule)
        other = reordered(graph, order)
        assert lifted(order, schedule_of(other, range(len(order)))) == schedule


@settings(deadline=None, max_examples=60)
@given(tight_problems(max_ops=9))
def test_it_is_valid_and_never_better_than_the_best_in_any_order(problem: Problem) -> None:
    graph = problem.graph
    oracle = Exhaustive().solve(problem, Limits())
    for solver in (Reorder(), Reorder(lowest=True)):
        solution = solver.solve(problem, Limits(time_s=20))
        if solution.schedule is None:
            continue
        verify(problem, solution.schedule)
        assert oracle.schedule is not None
        assert simulate(graph, solution.schedule).time_ns >= oracle.proven_bound_ns


@pytest.mark.slow
@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
@pytest.mark.parametrize(
    ("name", "percent"), [("rl100", 80), ("rl250", 74), ("rl500", 89), ("rl1000", 93)]
)
def test_random_layered_graphs_run_in_less_for_nothing(name: str, percent: int) -> None:
    graph = read_graph(INSTANCES / f"{name}.json")
    plain = schedule_of(graph, range(len(graph.ops)))
    goal_bytes = simulate(graph, plain).peak_bytes * percent // 100
    order = lowest_order(graph, goal_bytes, time.monotonic() + 300, seed=0)
    assert Rules(graph).peak_bytes(order) <= goal_bytes


@settings(deadline=None, max_examples=300)
@given(random_graphs(max_ops=12), st.randoms(use_true_random=False))
def test_a_move_changes_the_bytes_as_counting_anew_does(graph: Graph, rng: random.Random) -> None:
    rules = Rules(graph)
    walk = Walk(rules, range(len(graph.ops)))
    for _ in range(30 if graph.ops else 0):
        at = rng.randrange(len(graph.ops))
        first, last = walk.room(at)
        to = rng.randint(first, last)
        if to != at:
            before = walk.peak_bytes
            walk.try_move(at, to)
            assert walk.peak_bytes <= before
        live = rules.live_bytes(places(walk.sequence))
        assert list(walk.live) == list(live)
        assert walk.peak_bytes == live[walk.peak_place] == live.max()
        assert [walk.sequence[p] for p in walk.place] == list(range(len(graph.ops)))
