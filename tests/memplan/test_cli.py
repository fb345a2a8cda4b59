"""The command line as a user meets it: results, and one clear line for each mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from memplan.cli import main
from memplan.commands import COMMANDS
from memplan.errors import CaptureError

MODEL = """
import torch
from torch import nn
from torch.nn import functional

def model():
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(64, 64), nn.Tanh())])

def example_inputs():
    return (torch.randn(512, 64), torch.randn(512, 64))

loss = functional.mse_loss

def optimizer(params):
    return torch.optim.AdamW(params)
"""


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return path


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "bad.py"
    path.write_text(dedent(text))
    return str(path)


def fails(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 2) -> str:
    """Run the command, check that it fails in one line, and return that line."""
    assert main(argv) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    lines = captured.err.strip().splitlines()
    assert lines[0].startswith("memplan: ")
    return captured.err


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
    file.write_text(FORWARD.format(body="raise ValueError('not today')"))
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


def test_a_folder_in_place_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is a folder" in fails(capsys, "compile", str(tmp_path), "--budget", "1GB")
    assert "Is a directory" in fails(capsys, "solve", str(tmp_path), "--budget", "1GB")
    assert "there is no plan in" in fails(capsys, "show", str(tmp_path))


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


def test_what_the_file_prints_and_warns_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.py"
    file.write_text(MODEL + "\nimport warnings\nprint('hello')\nwarnings.warn('old\\nname')\n")
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


def test_an_error_that_is_not_foreseen_is_one_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.py"
    check_values = "assert (x > 1000).all(), 'too small'; return self.linear(x)"
    file.write_text(FORWARD.format(body=check_values))
    arguments = ("compile", str(file), "--budget", "1GB", "--verify")
    text = fails(capsys, *arguments, code=1)
    assert "RuntimeError: too small" in text
    assert "add --debug" in text
    with pytest.raises(RuntimeError, match="too small"):
        main([*arguments, "--debug"])


def test_debug_shows_what_the_tracer_said(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(FORWARD.format(body="raise ValueError('not today')"))
    with pytest.raises(CaptureError) as caught:
        main(["--debug", "compile", str(file), "--budget", "1GB"])
    assert not caught.value.__suppress_context__
    assert isinstance(caught.value.__context__, torch._dynamo.exc.Unsupported)


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


def test_no_such_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no file" in fails(capsys, "compile", "nowhere.py", "--budget", "1GB")


def test_a_file_without_a_model_is_shown_an_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, "import torch\n")
    text = fails(capsys, "compile", file, "--budget", "1GB")
    assert "defines no 'model'" in text
    assert "def example_inputs():" in text


def test_a_model_that_raises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        tmp_path,
        """
        def model():
            raise ValueError("no weights here")
        def example_inputs():
            return ()
        """,
    )
    text = fails(capsys, "compile", file, "--budget", "1GB")
    assert "line 3: ValueError: no weights here" in text


def test_a_file_that_ends_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "import sys\nsys.exit(7)\n")
    assert "line 2: SystemExit: 7" in fails(capsys, "compile", file, "--budget", "1GB")


def test_what_lies_beside_the_file_can_be_imported_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sizes_beside.py").write_text("WIDTH = 4\n")
    (tmp_path / "json.py").write_text(
        FORWARD.format(body="return torch.tanh(self.linear(x))").replace(
            "model = Net", "def model():\n    import sizes_beside\n    return Net()"
        )
    )
    assert main(["compile", str(tmp_path / "json.py"), "--budget", "1GB"]) == 0
    assert sys.modules["json"] is json


def test_a_file_with_a_syntax_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "line 2" in fails(capsys, "compile", write(tmp_path, "\ndef (:\n"), "--budget", "1GB")


FORWARD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        {body}

model = Net
example_inputs = lambda: (torch.randn(2, 4),)
"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('not today')", ("not today", "bad.py:11")),
        ("return self.linear(x) + torch.randn(3)", ("bad.py:11",)),
        ("return self.linear(x)[: int(x.abs().sum().item())]", ("bad.py:11", "static shapes")),
        ("print(float(self.linear(x).sum())); return self.linear(x)", ("bad.py:11",)),
        ("return 'done'", ("gradient",)),
        ("return self.linear(x).detach()", ("gradient",)),
        ("return x if self.linear(x).sum() > 0 else -self.linear(x)", ("bad.py:11",)),
    ],
)
def test_a_model_that_cannot_be_captured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, words: tuple[str, ...]
) -> None:
    file = tmp_path / "bad.py"
    file.write_text(FORWARD.format(body=body))
    text = fails(capsys, "compile", str(file), "--budget", "1GB")
    assert len(text.strip().splitlines()) == 1, text
    for word in words:
        assert word in text


def test_wrong_names_list_the_right_ones(
    model_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("compile", str(model_file), "--budget", "1GB")
    assert "greedy" in fails(capsys, *base, "--solver", "gredy")
    assert "a100-40gb" in fails(capsys, *base, "--device", "a101")
    assert "adamw" in fails(capsys, *base, "--optimizer", "adamx")
    assert "measured or analytic" in fails(capsys, *base, "--profile", "guessed")


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
    other.write_text(MODEL.replace("Linear(64, 64)", "Linear(64, 64, bias=False)"))
    assert "another model" in fails(capsys, "check", str(folder), str(other))
    other.write_text(MODEL.replace("(512, 64)", "(256, 64)"))
    assert "other input shapes" in fails(capsys, "check", str(folder), str(other))


def test_solvers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solvers", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"keep-all", "greedy", "checkmate", "auto"} <= {row["name"] for row in rows}
    assert {"name", "kind", "exact", "source", "may", "needs", "available"} <= rows[0].keys()


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
