from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import peers
from tests.small_graphs import hourglass


def test_a_picture_and_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "hourglass.json"
    path.write_text(hourglass().to_json())
    argv = ["peers", str(path), "--budgets", "104", "--solvers", "greedy,rotor"]
    monkeypatch.setattr(sys, "argv", [*argv, "-o", str(tmp_path / "out")])
    assert peers.main() == 0
    figures = json.loads((tmp_path / "out" / "peers_hourglass.json").read_text())
    assert figures["ops"] == 6
    greedy, rotor = figures["rows"]
    assert (greedy["status"], greedy["overhead"]) == ("feasible", 25 / 15 - 1)
    assert rotor["solver"] == "rotor"
    assert (tmp_path / "out" / "peers_hourglass.png").exists()


def test_the_solvers_with_a_curve() -> None:
    names = peers.with_a_curve()
    assert {"auto", "rotor", "dtr"} <= set(names)
    assert "exhaustive" not in names
