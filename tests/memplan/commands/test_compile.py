"""Compiling: what is printed and written, and budgets and outputs that cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.cli import main
from tests.memplan.commands.failing import fails
from tests.memplan.commands.model_files import NET_THAT_RUNS, TEXT

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_compile_prints_the_plan_at_a_glance(
    model_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["compile", str(model_file), "--budget", "80%", "--solver", "greedy", "--verify"])
        == 0
    )
    out = capsys.readouterr().out
    for word in ("unplanned peak", "planned peak", "budget", "extra time", "gap", "parameters"):
        assert word in out
    assert "bit-identical" in out


def test_json_has_the_stable_keys(model_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model_file), "--budget", "80%", "--json", "--verify"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    result = json.loads(out)
    keys = {"unplanned_peak_bytes", "planned_peak_bytes", "budget_bytes", "overhead"}
    keys |= {"proven_bound", "model_bound", "gap", "status", "solver", "solve_seconds"}
    keys |= {"capture_seconds", "ops", "tensors", "bytes", "verify"}
    assert keys <= result.keys()
    assert result["planned_peak_bytes"] <= result["budget_bytes"]
    assert sum(result["bytes"].values()) == result["planned_peak_bytes"]
    verify = result["verify"]
    assert verify["gradients_identical"] is True
    assert verify["measured_peak_bytes"] <= result["budget_bytes"]
    assert verify["measured_peak_bytes"] == pytest.approx(result["planned_peak_bytes"], rel=0.01)


def test_a_budget_larger_than_needed_keeps_everything(
    model_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(model_file), "--budget", "1TB"]) == 0
    out = capsys.readouterr().out
    assert "keep-all" in out
    assert "nothing is recomputed" in out


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("8XB", "cannot read '8XB'"),
        ("0", "more than 0"),
        ("0GB", "more than 0"),
        ("-5GB", "more than 0"),
        ("much", "cannot read 'much'"),
        ("50%%", "cannot read '50%%'"),
    ],
)
def test_bad_budget(
    model_file: Path, capsys: pytest.CaptureFixture[str], budget: str, words: str
) -> None:
    assert words in fails(capsys, "compile", str(model_file), f"--budget={budget}")


def test_infeasible_names_the_smallest_budget(
    model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "plan"
    arguments = ("compile", str(model_file), "--budget", "10%", "-o", str(folder))
    text = fails(capsys, *arguments, code=3)
    assert text.count("\n") == 1
    assert "smallest budget known to be feasible" in text
    assert "proven lower limit" in text
    assert not folder.exists()


def test_a_failing_capture_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.py"
    file.write_text(NET_THAT_RUNS.format(body="raise ValueError('not today')"))
    folder = tmp_path / "plan"
    fails(capsys, "compile", str(file), "--budget", "1GB", "-o", str(folder))
    assert not folder.exists()


def test_an_output_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for output in (file, file / "plan"):
        text = fails(capsys, "compile", "nowhere.py", "--budget", "1GB", "-o", str(output))
        assert f"cannot write to {output}" in text
    assert file.read_text() == ""


def test_wrong_names_list_the_right_ones(
    model_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("compile", str(model_file), "--budget", "1GB")
    assert "greedy" in fails(capsys, *base, "--solver", "gredy")
    assert "a100-40gb" in fails(capsys, *base, "--device", "a101")
    assert "adamw" in fails(capsys, *base, "--optimizer", "adamx")
    assert "measured or analytic" in fails(capsys, *base, "--profile", "guessed")


def test_piped_output_has_one_line_a_row_and_no_colours(
    model_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["compile", str(model_file), "--budget", "1TB"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert lines == [line.rstrip() for line in lines]
    note = (
        "note: The step takes 1.38 MB without a plan, which fits 1.00 TB: nothing is recomputed."
    )
    assert note in lines
    times = next(line for line in lines if line.startswith("extra time"))
    assert times.endswith("by the profile")


def test_what_the_file_prints_and_warns_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.py"
    file.write_text(TEXT + "\nimport warnings\nprint('hello')\nwarnings.warn('old\\nname')\n")
    assert main(["compile", str(file), "--budget", "1TB", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert "hello\n" in captured.err
    assert "net.py:20: UserWarning: old name\n" in captured.err


@pytest.mark.slow
def test_a_process_of_its_own_prints_json_only(model_file: Path, tmp_path: Path) -> None:
    # What compiled libraries write goes around Python's stdout: only a real process shows it.
    command = [sys.executable, "-m", "memplan", "compile", str(model_file), "--budget", "80%"]
    done = subprocess.run(
        [*command, "--json", "--time-limit", "5"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["planned_peak_bytes"] <= json.loads(done.stdout)["budget_bytes"]
