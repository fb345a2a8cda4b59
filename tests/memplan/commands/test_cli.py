"""The command line as a whole: help, and one clear line for each mistake in typing."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from memplan.cli import main
from memplan.commands import COMMANDS
from tests.memplan.commands.failing import fails

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",)])
def test_help_has_an_example(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "Example: memplan compile examples/gpt2.py --budget 50% --verify" in out
    listed = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line]
    assert listed[:4] == ["compile", "show", "check", "solve"]
    assert {"solvers", *(command.name for command in COMMANDS)} <= set(listed)


@pytest.mark.parametrize("command", ["compile", "show", "check", "solve", "compare", "solvers"])
def test_help_of_a_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Example: memplan {command}" in out
    assert len(out.splitlines()) <= 34


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"memplan {version('memplan')}\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("complie", "x.py"), "did you mean 'compile'?"),
        (("optimise",), "see `memplan --help`"),
        (("compile", "x.py", "--buget", "1GB"), "Did you mean '--budget'?"),
        (("compile", "x.py"), "'--budget'"),
        (("compile",), "see `memplan compile --help`"),
        (("compile", "x.py", "--budget", "1GB", "--time-limit", "-1"), "--time-limit"),
        (("solvers", "all"), "see `memplan solvers --help`"),
    ],
)
def test_typing_errors(
    argv: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = fails(capsys, *argv)
    assert text.count("\n") == 1
    assert words in text


def test_a_folder_in_place_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is a folder" in fails(capsys, "compile", str(tmp_path), "--budget", "1GB")
    assert "Is a directory" in fails(capsys, "solve", str(tmp_path), "--budget", "1GB")
    assert "there is no plan in" in fails(capsys, "show", str(tmp_path))


def test_stopping_by_hand(
    model_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memplan.step_planner.make_plan", stop)
    assert main(["compile", str(model_file), "--budget", "1GB"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip() == "memplan: stopped"
