import json
from pathlib import Path

import pytest

from memplan.cli import main
from memplan.planner.pipeline import make_plan
from tests.planner.test_max_batch import chain


@pytest.fixture
def folder(tmp_path: Path) -> str:
    make_plan(chain(100), "min", solver="exhaustive").save(tmp_path / "plan.json")
    return str(tmp_path)


def test_the_plan_at_a_glance(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", folder]) == 0
    out = capsys.readouterr().out
    for words in ("The peak is 310 B", "largest at the peak", "op that runs again", "No plan"):
        assert words in out
    assert main(["explain", folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(row["bytes"] for row in found["tensors_at_peak"]) == 310


def test_a_tensor_an_op_and_a_module(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", folder, "--tensor", "w"]) == 0
    assert "w (10 B) is a parameter" in capsys.readouterr().out
    assert main(["explain", folder, "--op", "f0"]) == 0
    out = capsys.readouterr().out
    assert "f0 is the forward op" in out
    assert "reads   w (10 B) is a parameter" in out
    assert main(["explain", folder, "--module", ""]) == 0
    assert "a0 (100 B)" in capsys.readouterr().out
    assert main(["explain", folder, "--tensor", "a0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 100


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--tensor", "a"), "has no tensor 'a'; did you mean a0, a1, a2?"),
        (("--op", "f0x"), "has no op 'f0x'; did you mean f0"),
        (("--module", "layer"), "has no module 'layer'"),
        (("--op", "f0", "--tensor", "w"), "one of --tensor, --op and --module"),
    ],
)
def test_wrong_questions(
    more: tuple[str, ...], said: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", folder, *more]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err


def test_a_folder_without_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(tmp_path)]) == 2
    assert "there is no plan in" in capsys.readouterr().err
