"""The peers' benchmark on a graph of six ops, and what counts as being beaten."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import peers
from memplan.planner.compare import ComparisonRow
from tests.graphs import chain
from tests.small_graphs import hourglass


def row(solver: str, peak_bytes: int | None, overhead: float | None) -> ComparisonRow:
    return ComparisonRow(
        solver=solver,
        budget="",
        budget_bytes=peak_bytes or 0,
        status="feasible",
        overhead=overhead,
        peak_bytes=peak_bytes,
    )


def test_a_picture_and_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "hourglass.json"
    path.write_text(hourglass().to_json())
    argv = ["peers", str(path), "--budgets", "104", "--solvers", "greedy,rotor"]
    monkeypatch.setattr(sys, "argv", [*argv, "--time-limit", "5", "-o", str(tmp_path / "out")])
    assert peers.main() == 0
    figures = json.loads((tmp_path / "out" / "peers_hourglass.json").read_text())
    assert figures["ops"] == 6
    assert figures["peers_better_at"] == []
    points = {(r["solver"], r["budget"]): r["overhead"] for r in figures["rows"]}
    assert points["greedy", "104"] == points["auto", "104"] == 25 / 15 - 1
    assert (tmp_path / "out" / "peers_hourglass.png").exists()


def test_the_points_that_no_other_beats() -> None:
    rows = [row("a", 4, 0.1), row("b", 3, 0.3), row("c", 3, 0.2), row("d", 5, 0.1)]
    assert [r.solver for r in peers.pareto([*rows, row("e", None, None)])] == ["c", "a"]


def test_where_a_peer_is_better() -> None:
    theirs = [row("a", 3, 0.2), row("b", 4, 0.1), row("c", 2, 0.5)]
    ours = [row("auto", 3, 0.2), row("auto", 4, 0.15)]
    better = peers.beaten(theirs, ours)
    assert [(peer.solver, own) for peer, own in better] == [("b", 0.15), ("c", None)]


def test_methods_without_a_budget_have_their_own_points() -> None:
    found = list(peers.plans_without_budget(chain(16), ""))
    assert {r.solver for r in found} == {"chen-greedy", "knapsack"}
    assert min(r.overhead or 0.0 for r in found) == 0.0
