"""A solver's options in its name, as the command line takes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memplan.cli import main
from memplan.errors import UsageError
from memplan.planner.pipeline import make_plan
from memplan.planner.problem import Limits
from memplan.planner.solver import load_solver
from memplan.solvers.chains.rotor import Rotor
from memplan.solvers.joint import Joint
from memplan.solvers.online.dtr import Dtr
from tests.small_graphs import hourglass


def test_numbers_words_and_choices() -> None:
    assert load_solver("rotor:slots=200:keep-whole-stages=no") == Rotor(
        slots=200, keep_whole_stages=False
    )
    assert load_solver("dtr:heuristic=lru:dealloc=banish") == Dtr("lru", "banish")
    assert load_solver("joint:starts=lms+greedy:replays=none:near=0.1") == Joint(
        starts=("lms", "greedy"), replays=None, near=0.1
    )
    assert load_solver("joint:replays=3") == Joint(replays=3)


def test_options_in_python_come_first() -> None:
    assert load_solver("rotor:slots=200", slots=100) == Rotor(slots=100)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rotor:speed=1", "no option 'speed'; it has slots"),
        ("rotor:slots", "cannot read 'slots' in 'rotor:slots'; write rotor:option=value"),
        ("rotor:slots=many", "'slots' of solver 'rotor' takes a whole number, not 'many'"),
        ("rotor:keep_whole_stages=2", "takes yes or no, not '2'"),
        ("poet:page_power=high", "takes a number, not 'high'"),
        ("checkmate:start=1", "can be set in Python only"),
        ("dtr:heuristic=best", "no heuristic 'best'"),
    ],
)
def test_mistakes_are_one_line(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        load_solver(name)
    assert "\n" not in str(error.value)


def test_a_plan_remembers_them() -> None:
    plan = make_plan(hourglass(), 110, solver="dtr:heuristic=size", limits=Limits(time_s=5))
    assert plan.solver == "dtr"
    assert json.loads(plan.provenance["solver_options"]) == {"heuristic": "size"}


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hourglass.json"
    path.write_text(hourglass().to_json())
    names = "dtr,dtr:heuristic=size:dealloc=ignore"
    assert main(["compare", str(path), "--budgets", "110", "--solvers", names, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["solver"] for row in rows] == names.split(",")
    assert main(["solve", str(path), "--budget", "110", "--solver", "dtr:dealloc=never"]) == 2
    assert "no dealloc 'never'" in capsys.readouterr().err
