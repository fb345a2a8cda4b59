"""Compiling model files that do not load, or whose step cannot be captured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from memplan.cli import main
from memplan.errors import CaptureError
from tests.memplan.commands.failing import fails
from tests.memplan.commands.model_files import NET_THAT_RUNS, write_bad_file

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_no_such_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no file" in fails(capsys, "compile", "nowhere.py", "--budget", "1GB")


def test_a_file_without_a_model_is_shown_an_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_bad_file(tmp_path, "import torch\n")
    text = fails(capsys, "compile", file, "--budget", "1GB")
    assert "defines no 'model'" in text
    assert "def example_inputs():" in text


def test_a_model_that_raises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_bad_file(
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
    file = write_bad_file(tmp_path, "import sys\nsys.exit(7)\n")
    assert "line 2: SystemExit: 7" in fails(capsys, "compile", file, "--budget", "1GB")


def test_what_lies_beside_the_file_can_be_imported_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sizes_beside.py").write_text("WIDTH = 4\n")
    (tmp_path / "json.py").write_text(
        NET_THAT_RUNS.format(body="return torch.tanh(self.linear(x))").replace(
            "model = Net", "def model():\n    import sizes_beside\n    return Net()"
        )
    )
    assert main(["compile", str(tmp_path / "json.py"), "--budget", "1GB"]) == 0
    assert sys.modules["json"] is json


def test_a_file_with_a_syntax_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "line 2" in fails(
        capsys, "compile", write_bad_file(tmp_path, "\ndef (:\n"), "--budget", "1GB"
    )


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
    file.write_text(NET_THAT_RUNS.format(body=body))
    text = fails(capsys, "compile", str(file), "--budget", "1GB")
    assert len(text.strip().splitlines()) == 1, text
    for word in words:
        assert word in text


def test_an_error_that_is_not_foreseen_is_one_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.py"
    check_values = "assert (x > 1000).all(), 'too small'; return self.linear(x)"
    file.write_text(NET_THAT_RUNS.format(body=check_values))
    arguments = ("compile", str(file), "--budget", "1GB", "--verify")
    text = fails(capsys, *arguments, code=1)
    assert "RuntimeError: too small" in text
    assert "add --debug" in text
    with pytest.raises(RuntimeError, match="too small"):
        main([*arguments, "--debug"])


def test_debug_shows_what_the_tracer_said(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(NET_THAT_RUNS.format(body="raise ValueError('not today')"))
    with pytest.raises(CaptureError) as caught:
        main(["--debug", "compile", str(file), "--budget", "1GB"])
    assert not caught.value.__suppress_context__
    assert isinstance(caught.value.__context__, torch._dynamo.exc.Unsupported)
