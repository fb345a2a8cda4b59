from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from memplan.errors import (
    BudgetSyntaxError,
    InfeasibleBudget,
    InvalidSchedule,
    SolverStopped,
    UnknownSolver,
    UsageError,
)
from memplan.graph_capture.graph import Graph
from memplan.planner import pipeline
from memplan.planner.minimum import MinimumBudget
from memplan.planner.pipeline import make_plan
from memplan.planner.plan import Plan
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Compute, Drop, Schedule, schedule_of
from memplan.planner.solver import Solution, Solver, Status
from tests.small_graphs import HOURGLASS_RECOMPUTED, chain, hourglass, two_outputs

KEPT = schedule_of(hourglass(), range(6))
RECOMPUTED = schedule_of(hourglass(), HOURGLASS_RECOMPUTED)
FOUND = Solution(status=Status.FEASIBLE, schedule=RECOMPUTED)


@dataclass(frozen=True)
class Scripted:
    """A solver that answers what the test says."""

    name: ClassVar[str] = "scripted"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "this test"
    answer: Solution

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        return self.answer


def plan(monkeypatch: pytest.MonkeyPatch, answer: Solution, **arguments: Any) -> Plan:
    """Plan the hourglass for 120 bytes with a solver that gives `answer`."""

    def load(name: str, **options: Any) -> Solver:
        return Scripted(answer)

    monkeypatch.setattr(pipeline, "load_solver", load)
    return make_plan(**{"graph": hourglass(), "budget": 120, **arguments})


@pytest.fixture
def minimum(monkeypatch: pytest.MonkeyPatch) -> list[Limits]:
    """The search for the smallest budget finds the 104-byte schedule; returns its calls."""
    calls: list[Limits] = []

    def search(graph: Graph, limits: Limits) -> MinimumBudget:
        calls.append(limits)
        return MinimumBudget(limit_bytes=104, feasible_bytes=104, schedule=RECOMPUTED)

    monkeypatch.setattr(pipeline, "minimum_budget", search)
    return calls


@pytest.mark.parametrize("budget", [153, 10**9, "153", "100%", "8GB"])
def test_a_budget_that_covers_the_step_changes_nothing(budget: str | int) -> None:
    made = make_plan(hourglass(), budget, solver="keep-all")
    assert made.schedule == KEPT
    assert (made.status, made.solver) == (Status.OPTIMAL, "keep-all")
    assert (made.overhead, made.gap, made.recomputed_ops) == (0, 0, 0)
    assert "nothing is recomputed" in made.notes[0]


def test_the_solver_is_asked_below_that(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, FOUND)
    assert made.schedule == RECOMPUTED
    assert (made.budget_bytes, made.unplanned_peak_bytes, made.planned_peak_bytes) == (
        120,
        153,
        104,
    )
    assert (made.status, made.solver, made.limit_bytes) == (Status.FEASIBLE, "scripted", 104)
    assert made.proven_bound_ns == 15, "no solver is needed to know that each op runs once"


def test_a_share_is_of_the_unplanned_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(monkeypatch, FOUND, budget="80%").budget_bytes == 122


def test_needless_residents_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy: Schedule = tuple(step for step in RECOMPUTED if step != Drop(2))
    made = plan(monkeypatch, Solution(status=Status.FEASIBLE, schedule=lazy))
    assert made.schedule == RECOMPUTED


@pytest.mark.parametrize("proven_bound_ns", [0, 25])
def test_optimal_closes_the_gap(monkeypatch: pytest.MonkeyPatch, proven_bound_ns: int) -> None:
    made = plan(
        monkeypatch, replace(FOUND, status=Status.OPTIMAL, proven_bound_ns=proven_bound_ns)
    )
    assert (made.status, made.proven_bound_ns, made.gap) == (Status.OPTIMAL, 25, 0)


def test_a_bound_that_is_reached_is_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, replace(FOUND, proven_bound_ns=25))
    assert made.status is Status.OPTIMAL


def test_a_bound_above_the_schedule_itself_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, replace(FOUND, status=Status.OPTIMAL, proven_bound_ns=26))
    assert (made.status, made.proven_bound_ns) == (Status.FEASIBLE, 15)
    assert "the claim is left out" in made.notes[-1]


def test_what_the_solver_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, replace(FOUND, reason="Stopped early.", model_bound_ns=20))
    assert made.notes == ("Stopped early.",)
    assert made.model_bound_ns == 20


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (KEPT, r"step 3: 153 bytes in use, 33 over the budget \(a bug in solver 'scripted'"),
        ((Compute(1),), "step 0: 'squash' reads"),
    ],
)
def test_an_invalid_schedule_is_never_believed(
    monkeypatch: pytest.MonkeyPatch, schedule: Schedule, message: str
) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        plan(monkeypatch, replace(FOUND, schedule=schedule))


def test_a_budget_below_the_limit_is_infeasible_without_solving(minimum: list[Limits]) -> None:
    with pytest.raises(InfeasibleBudget) as caught:
        make_plan(hourglass(), 103, solver="keep-all", limits=Limits(time_s=5))
    error = caught.value
    assert (error.budget_bytes, error.limit_bytes, error.feasible_bytes) == (103, 104, 104)
    assert error.op == "finish"
    assert error.top_tensors == (("big", 100), ("x", 1), ("loss", 1), ("seed", 1), ("grad", 1))
    assert minimum == [Limits(time_s=5)]


def test_a_proof_of_the_solver_moves_the_limit_up(
    monkeypatch: pytest.MonkeyPatch, minimum: list[Limits]
) -> None:
    def search(graph: Graph, limits: Limits) -> MinimumBudget:
        return MinimumBudget(limit_bytes=104, feasible_bytes=130, schedule=KEPT)

    monkeypatch.setattr(pipeline, "minimum_budget", search)
    with pytest.raises(InfeasibleBudget, match="no schedule fits 120 bytes") as caught:
        plan(monkeypatch, Solution(status=Status.INFEASIBLE))
    assert (caught.value.limit_bytes, caught.value.feasible_bytes) == (121, 130)
    assert caught.value.op == "", "no single op needs 121 bytes"
    with pytest.raises(InfeasibleBudget) as caught:
        plan(monkeypatch, Solution(status=Status.INFEASIBLE, minimum_bytes=125))
    assert caught.value.limit_bytes == 125


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.INFEASIBLE])
def test_a_known_schedule_refutes_the_solver(
    monkeypatch: pytest.MonkeyPatch, minimum: list[Limits], status: Status
) -> None:
    with pytest.raises(SolverStopped, match=r"one is known that takes 104 bytes.*'auto'"):
        plan(monkeypatch, Solution(status=status))


def test_running_out_of_time_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, minimum: list[Limits]
) -> None:
    def search(graph: Graph, limits: Limits) -> MinimumBudget:
        return MinimumBudget(limit_bytes=104, feasible_bytes=130, schedule=KEPT)

    monkeypatch.setattr(pipeline, "minimum_budget", search)
    with pytest.raises(SolverStopped) as caught:
        plan(monkeypatch, Solution(status=Status.UNKNOWN, reason="time ran out"))
    text = str(caught.value)
    assert "within 120 bytes (time ran out); that proves nothing" in text
    assert "smallest budget known to be feasible is 130 bytes, and none below 104 can be" in text


def test_min_is_the_smallest_budget_known(
    monkeypatch: pytest.MonkeyPatch, minimum: list[Limits]
) -> None:
    made = plan(monkeypatch, FOUND, budget=" Min ")
    assert (made.budget_bytes, made.planned_peak_bytes) == (104, 104)
    assert made.notes[0] == "104 B is the smallest budget there is."


def test_min_has_a_plan_even_where_the_solver_finds_none(
    monkeypatch: pytest.MonkeyPatch, minimum: list[Limits]
) -> None:
    made = plan(monkeypatch, Solution(status=Status.UNKNOWN), budget="min")
    assert (made.schedule, made.status) == (RECOMPUTED, Status.FEASIBLE)
    assert "found no schedule; this is" in made.notes[-1]


def test_usage_errors_come_before_any_work() -> None:
    with pytest.raises(BudgetSyntaxError):
        make_plan(hourglass(), "8 horses", solver="keep-all")
    with pytest.raises(UnknownSolver, match="no solver 'chance'"):
        make_plan(hourglass(), "100%", solver="chance")
    with pytest.raises(UsageError, match="no option 'depth'"):
        make_plan(hourglass(), "100%", solver="keep-all", options={"depth": 1})


def test_the_plan_remembers_where_it_comes_from() -> None:
    graph = replace(hourglass(), provenance=MappingProxyType({"torch": "2", "device": "cpu"}))
    made = make_plan(
        graph,
        "100%",
        solver="keep-all",
        limits=Limits(time_s=5, seed=3, threads=2),
        provenance={"optimizer": "adamw", "device": "h200"},
    )
    known = dict(made.provenance)
    assert list(known) == sorted(known)
    assert known.pop("graph_sha256") == hashlib.sha256(graph.to_json().encode()).hexdigest()
    assert known.pop("memplan")
    assert known == {
        "device": "h200",
        "gap": "0.003",
        "optimizer": "adamw",
        "seed": "3",
        "solver_options": "{}",
        "threads": "2",
        "time_limit_s": "5",
        "torch": "2",
    }


@pytest.mark.parametrize("graph", [chain(), two_outputs(), hourglass()])
def test_the_same_question_gives_the_same_bytes(graph: Graph) -> None:
    first = make_plan(graph, "100%", solver="keep-all")
    again = make_plan(Graph.from_json(graph.to_json()), "100%", solver="keep-all")
    assert first.to_json(timing=False) == again.to_json(timing=False)
    assert Plan.from_json(first.to_json()) == first
