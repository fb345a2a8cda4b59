"""Checking a plan against the model that it was made for, and others."""

from __future__ import annotations

from pathlib import Path

import pytest

from memplan.cli import main
from tests.memplan.commands.failing import fails
from tests.memplan.commands.model_files import TEXT

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_a_folder_is_written_shown_and_checked(
    model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "plan"
    arguments = [
        "compile",
        str(model_file),
        "--budget",
        "80%",
        "--solver",
        "greedy",
        "-o",
        str(folder),
    ]
    assert main(arguments) == 0
    names = ["backward.py", "forward.py", "plan.json", "report.html"]
    assert sorted(p.name for p in folder.iterdir()) == names
    assert "torch.ops.memplan.checkpoint" in (folder / "forward.py").read_text()
    capsys.readouterr()
    assert main(["show", str(folder)]) == 0
    assert "planned peak" in capsys.readouterr().out
    assert main(["check", str(folder), str(model_file), "--optimizer", "adamw"]) == 0
    assert "bit-identical" in capsys.readouterr().out


def test_a_plan_for_another_model_is_refused(
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
    other = tmp_path / "other.py"
    other.write_text(TEXT.replace("Linear(64, 64)", "Linear(64, 64, bias=False)"))
    assert "another model" in fails(capsys, "check", str(folder), str(other))
    other.write_text(TEXT.replace("batch=512", "batch=256"))
    assert "other input shapes" in fails(capsys, "check", str(folder), str(other))
