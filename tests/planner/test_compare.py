"""Comparisons: every answer of a solver is a row, its failures too."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from memplan.errors import BudgetSyntaxError, UnknownSolver, UsageError
from memplan.planner import compare as module
from memplan.planner import compare_worker
from memplan.planner.compare import ComparisonRow, compare
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from tests.small_graphs import hourglass


def test_rows_by_hand() -> None:
    """At 153 bytes nothing is recomputed; at 104 `grow` runs twice, 25 ns for 15; 103 is too few.

    Keeping everything fits only the first.
    """
    seen: list[tuple[int, int]] = []
    rows = compare(
        hourglass(),
        ["100%", 104, "103"],
        ["keep-all", "greedy"],
        done=lambda row, done, total: seen.append((done, total)),
    )
    assert [(row.budget_bytes, row.solver, row.status) for row in rows] == [
        (153, "keep-all", "optimal"),
        (153, "greedy", "optimal"),
        (104, "keep-all", "unknown"),
        (104, "greedy", "feasible"),
        (103, "keep-all", "infeasible"),
        (103, "greedy", "infeasible"),
    ]
    assert [row.overhead for row in rows] == [0.0, 0.0, None, 25 / 15 - 1, None, None]
    assert [row.peak_bytes for row in rows] == [153, 153, None, 104, None, None]
    assert rows[2].reason == "keeping everything takes 153 bytes"
    assert sorted(seen) == [(k, 6) for k in range(1, 7)]


def test_the_smallest_budget_can_be_asked_for() -> None:
    (row,) = compare(hourglass(), ["min"], ["greedy"])
    assert (row.budget_bytes, row.peak_bytes) == (104, 104)


def test_a_solver_that_raises_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def solve(self, problem: Problem, limits: Limits) -> Solution:
            raise ZeroDivisionError("first line\nsecond")

    monkeypatch.setattr(compare_worker, "load_solver", lambda name: Broken())
    graph = hourglass().to_json()
    job = {"graph": graph, "solver": "broken", "budget_bytes": 153, "time_s": 1.0, "seed": 0}
    job |= {"tiers": []}
    row = compare_worker.answer(job)
    assert row["status"] == "failed"
    assert row["reason"] == "ZeroDivisionError: first line second"


def ask(monkeypatch: pytest.MonkeyPatch, run: Any) -> ComparisonRow:
    monkeypatch.setattr(subprocess, "run", run)
    (row,) = compare(hourglass(), ["100%"], ["keep-all"])
    return row


def test_a_process_that_crashes_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, -11, stdout="", stderr="a\nSegfault")

    row = ask(monkeypatch, crash)
    assert (row.status, row.overhead) == ("failed", None)
    assert row.reason == "its process ended with code -11: Segfault"


def test_a_process_that_hangs_is_ended_and_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_S", -19.95)
    row = compare(hourglass(), ["100%"], ["keep-all"], time_limit=20.0)[0]
    assert (row.status, row.peak_bytes) == ("timeout", None)


def test_what_cannot_be_asked_is_an_error_at_once() -> None:
    with pytest.raises(UnknownSolver, match="no solver 'fastest'"):
        compare(hourglass(), ["50%"], ["fastest"])
    with pytest.raises(BudgetSyntaxError):
        compare(hourglass(), ["half"], ["greedy"])
    with pytest.raises(UsageError, match="at least one budget"):
        compare(hourglass(), [], ["greedy"])
