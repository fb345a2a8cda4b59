from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from memplan.errors import UnknownSolver
from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.minimum import minimum_budget, quick
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify
from memplan.solvers._replay import Replay
from memplan.solvers.exhaustive import Exhaustive, _Search
from memplan.solvers.greedy import Greedy
from tests.graphs import INSTANCES, chain, random_graphs, unit_chain


def test_a_chain_can_run_in_its_limit() -> None:
    # Recomputing from x for each gradient needs x, a_{i-1}, g_i and g_{i-1} only.
    graph = chain(6, nbytes=1000)
    found = minimum_budget(graph)
    assert found.limit_bytes == found.feasible_bytes == 4000
    verify(Problem(graph=graph, budget_bytes=4000), found.schedule)


def test_the_schedule_has_the_peak_that_is_named() -> None:
    graph = unit_chain(12)
    found = minimum_budget(graph, limits=Limits(time_s=10))
    assert simulate(graph, found.schedule).peak_bytes == found.feasible_bytes
    assert found.limit_bytes <= found.feasible_bytes < 13


def test_moving_goes_below_what_recomputing_can() -> None:
    """`a` and `b` cannot be made again: without a tier both stay while `wide` runs."""
    tensors = (
        Tensor(name="x", nbytes=1, kind=Kind.INPUT),
        Tensor(name="a", nbytes=50),
        Tensor(name="b", nbytes=10),
        Tensor(name="c", nbytes=40),
        Tensor(name="d", nbytes=10),
        Tensor(name="g", nbytes=1, kind=Kind.GRADIENT),
    )
    ops = (
        Op(name="first", inputs=(0,), outputs=(1,), time_ns=9, recomputable=False),
        Op(name="second", inputs=(1,), outputs=(2,), time_ns=9, recomputable=False),
        Op(name="wide", inputs=(2,), outputs=(3,), time_ns=9, recomputable=False),
        Op(name="last", inputs=(3,), outputs=(4,), time_ns=9, recomputable=False),
        Op(name="back", inputs=(1, 4), outputs=(5,), phase=Phase.BACKWARD, time_ns=9),
    )
    graph = Graph(tensors=tensors, ops=ops)
    tier = Tier(name="disk", capacity_bytes=100, write_bytes_per_s=10**9, read_bytes_per_s=10**9)
    assert minimum_budget(graph).feasible_bytes == 1 + 50 + 10 + 40
    # Then `back` is the largest: x, a, d and g. `first` and `second`, too, need a, b and x.
    found = minimum_budget(graph, tiers=(tier,))
    assert found.feasible_bytes == found.limit_bytes == 1 + 50 + 10 + 1
    problem = Problem(graph=graph, budget_bytes=found.feasible_bytes, tiers=(tier,))
    verify(problem, found.schedule)
    full = replace(tier, capacity_bytes=49)
    assert minimum_budget(graph, tiers=(full,)).feasible_bytes == 101


def test_a_solver_that_never_fits_leaves_the_unplanned_peak() -> None:
    graph = unit_chain(5)
    assert minimum_budget(graph, "keep-all").feasible_bytes == 7


def test_an_unknown_solver_is_named() -> None:
    with pytest.raises(UnknownSolver, match="no solver 'nope'"):
        minimum_budget(chain(2), "nope")


@settings(deadline=None, max_examples=40)
@given(random_graphs(max_ops=8))
def test_no_budget_below_the_limit_is_feasible_and_what_is_found_is(graph: Graph) -> None:
    found = minimum_budget(graph)
    at_least = Problem(graph=graph, budget_bytes=found.feasible_bytes)
    verify(at_least, found.schedule)
    assert Exhaustive().solve(at_least, Limits()).status is Status.OPTIMAL
    below = Problem(graph=graph, budget_bytes=found.limit_bytes - 1)
    assert search_every_schedule(below).status is Status.INFEASIBLE


@settings(deadline=None, max_examples=40)
@given(random_graphs(max_ops=8))
def test_hardly_any_schedule_of_the_captured_order_needs_less(graph: Graph) -> None:
    """The budgets here are a few bytes: one byte less is a few per cent."""
    found = minimum_budget(graph)
    least_bytes = found.feasible_bytes
    oracle = Exhaustive(fixed_order=True)
    while oracle.solve(Problem(graph=graph, budget_bytes=least_bytes - 1), Limits()).schedule:
        least_bytes -= 1
    assert found.feasible_bytes <= least_bytes + 3


def search_every_schedule(problem: Problem) -> Solution:
    """Ask the oracle without the shortcut for budgets below the limit."""
    return _Search(problem, False, False).run(1_000_000, float("inf"))


@pytest.mark.slow
@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
@pytest.mark.parametrize(
    ("name", "permille"),
    [("monet_unet", 197), ("cm_cm2", 114), ("rl100", 600), ("monet_r50", 138)],
)
def test_published_graphs_run_in_little_memory(name: str, permille: int) -> None:
    """No more than a bisection with as many replays at each budget had found."""
    graph = read_graph(INSTANCES / f"{name}.json")
    plain = schedule_of(graph, range(len(graph.ops)))
    found = minimum_budget(graph)
    assert found.feasible_bytes <= simulate(graph, plain).peak_bytes * permille // 1000


def test_small_graphs_get_little_time() -> None:
    assert quick(unit_chain(25), Limits(seed=3)) == Limits(time_s=2.51, seed=3)
    assert quick(unit_chain(25), Limits(time_s=1.0)) == Limits(time_s=1.0)


def test_the_lowest_peak_is_a_search_of_its_own() -> None:
    graph = unit_chain(12)
    problem = Problem(graph=graph, budget_bytes=12)
    lowest = Greedy(lowest=True).solve(problem, Limits())
    fastest = Greedy().solve(problem, Limits())
    assert lowest.schedule is not None
    assert fastest.schedule is not None
    low, fast = simulate(graph, lowest.schedule), simulate(graph, fastest.schedule)
    assert low.peak_bytes < fast.peak_bytes
    assert low.time_ns > fast.time_ns


def test_ctrl_c_ends_the_search_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, calls = Problem(graph=unit_chain(12), budget_bytes=12), []

    def run(self: Replay, circles: int | None = None) -> tuple[int, ...] | None:
        calls.append(circles)
        if len(calls) > allowed:
            raise KeyboardInterrupt
        return replay(self, circles)

    replay = Replay.run
    monkeypatch.setattr(Replay, "run", run)
    allowed = 0
    with pytest.raises(KeyboardInterrupt):
        Greedy(lowest=True).solve(problem, Limits())
    calls.clear()
    allowed = 1
    solution = Greedy(lowest=True).solve(problem, Limits())
    assert solution.schedule is not None
    assert simulate(problem.graph, solution.schedule).peak_bytes < 12
