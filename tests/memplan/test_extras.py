"""A library that is not installed is missed in one line that names the extra that brings it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from memplan.cli import app
from memplan.extras import extra_of

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "accelerate_loop": "accelerate",
    "lightning_module": "lightning",
    "lora": "peft",
    "transformers_trainer": "transformers",
}


@pytest.mark.parametrize("script", NEEDS)
def test_a_script_names_the_extra(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = NEEDS[script]
    assert extra_of(library)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SystemExit, match=rf"needs .*memplan\[{library}.*\]'`$"):
        runpy.run_path(str(EXAMPLES / "integrations" / f"{script}.py"))


def test_a_model_file_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = CliRunner().invoke(app, ["compile", str(EXAMPLES / "gpt2.py"), "--budget", "50%"])
    assert result.exit_code
    said = " ".join(f"{result.output} {result.exception}".split())
    assert "line 9: ModuleNotFoundError" in said
    assert "run `pip install 'memplan[examples]'`" in said
