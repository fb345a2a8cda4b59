"""How a command fails: one line, whose end says what to do."""

from __future__ import annotations

import pytest

from memplan.cli import main


def fails(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 2) -> str:
    """Run the command, check that it fails in one line, and return that line."""
    assert main(argv) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    lines = captured.err.strip().splitlines()
    assert lines[0].startswith("memplan: ")
    return captured.err
