"""Showing a plan that was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from memplan.cli import main
from tests.memplan.commands.failing import fails

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_a_damaged_plan_is_refused(
    model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "plan"
    assert (
        main(
            [
                "compile",
                str(model_file),
                "--budget",
                "80%",
                "--solver",
                "greedy",
                "-o",
                str(folder),
            ]
        )
        == 0
    )
    capsys.readouterr()
    plan = folder / "plan.json"
    plan.write_text(plan.read_text()[:-200])
    assert "plan.json" in fails(capsys, "show", str(folder))
    assert "plan.json" in fails(capsys, "check", str(folder), str(model_file))
