from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest

from memplan.planner.problem import Limits, Problem
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver
from memplan.planner.verify import verify
from memplan.solvers import auto
from tests.graphs import unet, unit_chain

PROBLEM = Problem(graph=unit_chain(12), budget_bytes=4)
"""Its optimum recomputes nodes more than once, which the relaxation does not see."""


class Interrupted:
    """A solver during which the user presses Ctrl-C."""

    name: ClassVar[str] = "interrupted"

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Never return."""
        raise KeyboardInterrupt


def interrupt(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    def load(name: str, **options: Any) -> Any:
        return Interrupted() if name in names else load_solver(name, **options)

    monkeypatch.setattr(auto, "load_solver", load)


def test_ctrl_c_returns_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, ("checkmate", "windowed"))
    solution = auto.Auto().solve(PROBLEM, Limits(time_s=10))
    assert solution.status is Status.FEASIBLE
    assert solution.schedule is not None
    verify(PROBLEM, solution.schedule)


def test_ctrl_c_before_any_schedule_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, ("dtr",))
    with pytest.raises(KeyboardInterrupt):
        auto.Auto().solve(PROBLEM, Limits(time_s=10))


def test_each_stage_is_reported() -> None:
    solution = auto.Auto(exact_ops=0).solve(PROBLEM, Limits(time_s=10, gap=0))
    assert {"relaxation_s", "greedy_s", "greedy_overhead", "windowed_s"} <= set(solution.stats)
    assert solution.model_bound_ns is not None


def test_it_stops_once_the_gap_is_small_enough() -> None:
    solution = auto.Auto(exact_ops=0).solve(PROBLEM, Limits(time_s=10, gap=1e9))
    assert "windowed_s" not in solution.stats


def test_the_relaxation_proves_a_plan_optimal() -> None:
    graph = unet(3)
    solution = auto.Auto().solve(Problem(graph=graph, budget_bytes=160), Limits(time_s=20, gap=0))
    assert solution.schedule is not None
    time_ns = simulate(graph, solution.schedule).time_ns
    assert graph.time_ns < time_ns == solution.proven_bound_ns
    assert solution.status is Status.OPTIMAL


@pytest.mark.parametrize("peer", ["dtr", "rotor", "chen-greedy"])
def test_no_quick_peer_is_better_even_where_time_is_short(
    monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    interrupt(monkeypatch, ("greedy",))
    monkeypatch.setattr(auto, "rounded", lambda *_: iter(()))
    graph = unit_chain(12)
    for budget_bytes in (12, 9, 7):
        problem = Problem(graph=graph, budget_bytes=budget_bytes)
        theirs = load_solver(peer).solve(problem, Limits(time_s=10)).schedule
        ours = auto.Auto(reorder=False).solve(problem, Limits(time_s=10, gap=0)).schedule
        assert theirs is not None
        assert ours is not None
        verify(problem, ours)
        assert simulate(graph, ours).time_ns <= simulate(graph, theirs).time_ns


def test_large_graphs_do_without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_PEERS_OPS", 5)
    solution = auto.Auto(exact_ops=0).solve(PROBLEM, Limits(time_s=10, gap=0))
    assert solution.schedule is not None
    assert "dtr_s" not in solution.stats


def test_why_a_peer_has_no_plan_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_PEERS", ("knapsack", "chen-greedy"))
    run = auto._Run(PROBLEM, Limits(time_s=10), time.monotonic())
    run.peers()
    assert {"knapsack_s", "chen-greedy_s"} <= set(run.stats)
    assert run.best is None
    assert run.failures == []
