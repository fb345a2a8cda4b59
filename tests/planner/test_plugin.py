"""A package that is not memplan's adds a solver, by an entry point alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memplan.errors import SolverStopped
from memplan.planner import pipeline
from memplan.planner.minimum import MinimumBudget
from memplan.planner.pipeline import make_plan
from memplan.planner.schedule import schedule_of
from memplan.planner.solver import Solver, load_solver, solver_entry_points
from tests.small_graphs import HOURGLASS_RECOMPUTED, hourglass

PLUGIN = Path(__file__).parent.parent / "plugin"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay the package out as an installer does, in a folder that Python looks into."""
    info = tmp_path / "memplan_toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: memplan-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[memplan.solvers]\ntoy = memplan_toy:Toy\n")
    (tmp_path / "memplan_toy").symlink_to(PLUGIN / "memplan_toy")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "memplan_toy", raising=False)


@pytest.mark.usefixtures("installed")
def test_it_is_found_beside_the_built_in_ones() -> None:
    assert {"toy", "keep-all"} <= set(solver_entry_points())
    solver = load_solver("toy", longest_ns=5)
    assert isinstance(solver, Solver)
    assert solver.name == "toy"


@pytest.mark.usefixtures("installed")
def test_it_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_plan(hourglass(), 104, solver="toy")
    assert made.schedule == schedule_of(hourglass(), HOURGLASS_RECOMPUTED)
    assert made.solver == "toy"
    assert made.provenance["solver_options"] == "{}"


@pytest.mark.usefixtures("installed")
def test_its_options_and_its_reasons_reach_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = schedule_of(hourglass(), range(6))
    answer = MinimumBudget(limit_bytes=104, feasible_bytes=153, schedule=kept)
    monkeypatch.setattr(pipeline, "minimum_budget", lambda graph, limits, tiers: answer)
    with pytest.raises(SolverStopped, match=r"'toy' .*\(repeating the cheap ops is not enough\)"):
        make_plan(hourglass(), 104, solver="toy", options={"longest_ns": 9})


@pytest.mark.slow
def test_pip_installs_it(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    pytest.importorskip("pip")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    options = ["--no-build-isolation", "--target", str(tmp_path), str(PLUGIN)]
    subprocess.run([*command, *options], check=True, capture_output=True)
    listed = subprocess.run(
        [sys.executable, "-c", "from memplan.planner.solver import *; print(load_solver('toy'))"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Toy(longest_ns=1000000000)" in listed.stdout
