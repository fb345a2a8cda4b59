"""Solving a graph in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memplan.cli import main


def test_solve_takes_a_plain_instance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # x -> a -> b -> c, and c reads x again: with two units x must be computed twice.
    graph = {"sizes": [1, 1, 1], "costs": [5, 1, 1], "edges": [[0, 1], [1, 2]]}
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph))
    assert main(["solve", str(path), "--budget", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["cost"] == 7
    assert result["peak"] == 2
    assert result["sequence"] == [0, 1, 2]
    assert result["status"] == "optimal"
