"""The table of solvers."""

from __future__ import annotations

import json

import pytest

from memplan.cli import main


def test_solvers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solvers", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"keep-all", "greedy", "checkmate", "auto"} <= {row["name"] for row in rows}
    assert {"name", "kind", "exact", "source", "may", "needs", "available"} <= rows[0].keys()
