"""The command `compare` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memplan.cli import main
from tests.small_graphs import hourglass


@pytest.fixture
def graph_file(tmp_path: Path) -> str:
    path = tmp_path / "hourglass.json"
    path.write_text(hourglass().to_json())
    return str(path)


def test_a_table(graph_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["compare", graph_file, "--budgets", "104,100%", "--solvers", "keep-all,greedy"]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("budget", "solver", "status", "extra", "time"),
        *("peak", "proven", "bound", "seconds", "remark"),
    ]
    assert len(lines) == 5
    assert "keeping everything takes 153 bytes" in lines[1]
    assert lines[2].split()[:5] == ["104", "greedy", "feasible", "+66.67%", "104"]


def test_json_and_a_picture(
    graph_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "out.png"
    argv = ["compare", graph_file, "--budgets", "110", "--solvers", "greedy", "--json"]
    assert main([*argv, "--plot", str(picture)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["solver"], row["status"], row["peak_bytes"]) == ("greedy", "feasible", 104)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--budgets", "50%", "--solvers", "fastest"), "no solver 'fastest'"),
        (("--budgets", ","), "--budgets names none"),
        (("--budgets", "half"), "cannot read 'half'"),
        (("--budgets", "50%", "--plot", "no/such/folder/a.png"), "there is no folder"),
    ],
)
def test_mistakes_are_one_line(
    options: tuple[str, ...], words: str, graph_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", graph_file, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
