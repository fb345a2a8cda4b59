"""Every solver that may move tensors: valid under any budget and speed, and clear where not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.limits import lower_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import (
    Prefetch,
    Schedule,
    SwapOut,
    schedule_of,
    sequence_of,
    swaps_in,
)
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver, solver_entry_points
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify
from memplan.solvers.joint import Joint
from memplan.solvers.swaps.capuchin import Capuchin
from tests.graphs import INSTANCES, chain, tight_problems, unet

NAMES = sorted(
    name for name in solver_entry_points() if "swap" in getattr(load_solver(name), "may", ())
)
FIXED = ("save-on-cpu", "vdnn-all", "vdnn-conv", "oc-dnn")
"""These move the same whatever the budget is."""


def tier(bytes_per_ns: float, capacity_bytes: int = 10**15) -> Tier:
    speed = round(bytes_per_ns * 10**9)
    return Tier(
        name="host",
        capacity_bytes=capacity_bytes,
        write_bytes_per_s=speed,
        read_bytes_per_s=speed,
    )


def keep_bytes(graph: Graph) -> int:
    return simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes


def solve(name: str, problem: Problem, time_s: float = 5.0) -> Solution:
    """Solve and check everything that holds for any answer."""
    solution = load_solver(name).solve(problem, Limits(time_s=time_s))
    if solution.schedule is None:
        assert solution.reason
        return solution
    verify(problem, solution.schedule)
    time_ns = simulate(problem.graph, solution.schedule, problem.tiers).time_ns
    assert (solution.status is Status.OPTIMAL) == (time_ns == problem.graph.time_ns)
    return solution


def time_ns(problem: Problem, schedule: Schedule | None) -> float:
    if schedule is None:
        return float("inf")
    return simulate(problem.graph, schedule, problem.tiers).time_ns


def layers() -> Graph:
    """Return a chain whose tensors are large enough that moving some of them pays."""
    return chain(12, nbytes=100, time_ns=100)


def test_all_are_there() -> None:
    assert len(NAMES) >= 20
    assert {"auto", "joint", "save-on-cpu", "capuchin"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.9, 0.6, 0.4])
def test_a_fast_tier_and_a_slow_one(name: str, share: float) -> None:
    graph = layers()
    for speed in (10.0, 0.5):
        budget_bytes = round(share * keep_bytes(graph))
        problem = Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier(speed),))
        solution = solve(name, problem)
        if name in {"joint", "auto"}:
            assert solution.schedule is not None
        if solution.schedule is not None and "recompute" not in load_solver(name).may:  # type: ignore[attr-defined]
            assert swaps_in(solution.schedule)
            assert sequence_of(solution.schedule) == tuple(range(len(graph.ops)))


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_that_moving_cannot_meet_names_the_op(name: str) -> None:
    """`wide` needs both branches, which nothing can move away from it."""
    tensors = (
        Tensor(name="x", nbytes=1, kind=Kind.INPUT),
        Tensor(name="a", nbytes=50),
        Tensor(name="b", nbytes=50),
        Tensor(name="y", nbytes=10),
        Tensor(name="g", nbytes=1, kind=Kind.GRADIENT),
    )
    ops = (
        Op(name="left", inputs=(0,), outputs=(1,), time_ns=9, recomputable=False),
        Op(name="right", inputs=(0,), outputs=(2,), time_ns=9, recomputable=False),
        Op(name="wide", inputs=(1, 2), outputs=(3,), time_ns=9, workspace_bytes=40),
        Op(name="back", inputs=(1, 3), outputs=(4,), phase=Phase.BACKWARD, time_ns=9),
    )
    graph = Graph(tensors=tensors, ops=ops)
    limit_bytes, _ = lower_limit(graph)
    problem = Problem(graph=graph, budget_bytes=limit_bytes - 1, tiers=(tier(1.0),))
    assert solve(name, problem).status is Status.INFEASIBLE
    without = replace(problem, budget_bytes=limit_bytes)
    assert solve(name, without).status is Status.OPTIMAL


@pytest.mark.parametrize("name", [n for n in NAMES if n not in {"auto", "joint"}])
def test_what_does_not_fit_says_at_which_op(name: str) -> None:
    graph = unet(3)
    limit_bytes, _ = lower_limit(graph)
    problem = Problem(graph=graph, budget_bytes=limit_bytes, tiers=(tier(1.0),))
    solution = solve(name, problem)
    if solution.schedule is None:
        assert "no room while '" in solution.reason


@pytest.mark.parametrize("name", NAMES)
def test_a_tier_that_holds_nothing(name: str) -> None:
    graph = layers()
    budget_bytes = round(0.6 * keep_bytes(graph))
    problem = Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier(5.0, 0),))
    solution = solve(name, problem)
    assert solution.schedule is None or not swaps_in(solution.schedule)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_tier_there_is_nothing_to_move_to(name: str) -> None:
    graph = layers()
    problem = Problem(graph=graph, budget_bytes=round(0.6 * keep_bytes(graph)))
    solution = load_solver(name).solve(problem, Limits(time_s=5.0))
    if name in {"auto", "joint", "superneurons", "poet"}:
        assert solution.schedule is not None
        verify(problem, solution.schedule)
    else:
        assert "--swap" in solution.reason


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=25)
@given(problem=tight_problems())
def test_any_graph(name: str, problem: Problem) -> None:
    solve(name, replace(problem, tiers=(tier(1.0),)), time_s=1.0)


@pytest.mark.parametrize("speed", [100.0, 0.7, 0.01])
@pytest.mark.parametrize("share", [0.8, 0.4])
def test_joint_is_no_slower_than_any_other(share: float, speed: float) -> None:
    graph = layers()
    budget_bytes = round(share * keep_bytes(graph))
    problem = Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier(speed),))
    joint = time_ns(problem, solve("joint", problem).schedule)
    for name in ("greedy", *(n for n in NAMES if n not in {"auto", "joint"})):
        assert joint <= time_ns(problem, solve(name, problem).schedule), name


def test_joint_mixes_both_where_that_is_best() -> None:
    graph = layers()
    problem = Problem(graph=graph, budget_bytes=round(0.4 * keep_bytes(graph)), tiers=(tier(0.4),))
    solution = solve("joint", problem)
    assert solution.schedule is not None
    sequence = sequence_of(solution.schedule)
    assert len(sequence) > len(set(sequence)), "it recomputes"
    assert swaps_in(solution.schedule), "and it moves"
    alone = solve("greedy", problem)
    assert time_ns(problem, solution.schedule) < time_ns(problem, alone.schedule)
    moved = Capuchin(recomputes=False).solve(problem, Limits())
    assert time_ns(problem, solution.schedule) < time_ns(problem, moved.schedule)


def test_joint_gives_the_same_answer_twice() -> None:
    problem = Problem(graph=layers(), budget_bytes=800, tiers=(tier(0.4),))
    answers = [Joint(replays=20).solve(problem, Limits(time_s=60.0)) for _ in range(2)]
    assert answers[0].schedule == answers[1].schedule


def test_capuchin_moves_for_nothing_what_it_can() -> None:
    graph = layers()
    budget_bytes = round(0.8 * keep_bytes(graph))
    problem = Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier(10.0),))
    solution = solve("capuchin", problem)
    assert solution.status is Status.OPTIMAL


def test_save_on_cpu_moves_everything_and_waits() -> None:
    graph = layers()
    problem = Problem(graph=graph, budget_bytes=keep_bytes(graph) - 1, tiers=(tier(1.0),))
    schedule = solve("save-on-cpu", problem).schedule
    assert schedule is not None
    out = [step.tensor for step in schedule if isinstance(step, SwapOut)]
    # All layers' activations but the last, which the backward pass reads at once.
    assert len(out) == len([s for s in schedule if isinstance(s, Prefetch)]) >= 10
    assert simulate(graph, schedule, problem.tiers).stall_ns == len(out) * (100 + 100)


@pytest.mark.slow
@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
@pytest.mark.parametrize("instance", ["cm_unet", "cm_segnet", "cm_mobilenet", "monet_r50"])
@pytest.mark.parametrize("link", [0.1, 0.5])
def test_joint_on_published_instances(instance: str, link: float) -> None:
    """`link`: the share of all freeable bytes that the lane carries during the step."""
    graph = read_graph(INSTANCES / f"{instance}.json")
    freeable_bytes = sum(t.nbytes for t in graph.tensors if not t.pinned)
    place = tier(link * freeable_bytes / graph.time_ns)
    budget_bytes = round(0.6 * keep_bytes(graph))
    problem = Problem(graph=graph, budget_bytes=budget_bytes, tiers=(place,))
    joint = time_ns(problem, solve("joint", problem, 20.0).schedule)
    for name in (n for n in NAMES if n not in {"auto", "joint"}):
        assert joint <= time_ns(problem, solve(name, problem).schedule), name
    assert joint <= time_ns(problem, solve("greedy", problem, 6.0).schedule)
