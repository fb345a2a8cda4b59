"""Notebooks run from top to bottom and are stored without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_has_no_outputs(path: Path) -> None:
    assert code_cells(path)
    for cell in code_cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in code_cells(path):
        exec(compile("".join(cell["source"]), str(path), "exec"), names)
    assert capsys.readouterr().out
