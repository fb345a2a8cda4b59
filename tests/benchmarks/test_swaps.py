"""The table of swap policies on a small graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.swaps import main, swap_solvers
from tests.graphs import chain


def test_one_row_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "layers.json"
    file.write_text(chain(6, nbytes=100, time_ns=100).to_json(), encoding="utf-8")
    main([str(file), "--budgets", "60%", "--links", "1.0", "--time-limit", "1"])
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("layers, 13 ops, ")
    assert [row.split()[0] for row in rows[2:]] == swap_solvers()
    figures = {row.split()[0]: row.split()[1] for row in rows[2:]}
    others = [float(figure) for figure in figures.values() if figure != "-"]
    assert float(figures["joint"]) == min(others)
