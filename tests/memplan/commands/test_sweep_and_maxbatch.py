import json
from pathlib import Path

import pytest
import torch

from memplan.cli import main
from tests.memplan.commands.model_files import TEXT, write_model_file
from tests.planner.test_max_batch import chain

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_sweep_prints_one_row_a_budget_and_draws(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "curve.png"
    argv = ["sweep", str(write_model_file(tmp_path)), "--budgets", "100%,90%,min,1kB"]
    argv += ["--solver", "greedy", "--offline", "--plot", str(plot)]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["100%", "90%", "min", "1kB"]
    assert "+0.00%" in lines[1]
    assert "no plan fits; smallest known" in lines[4]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_sweep_takes_a_graph_and_prints_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "graph.json"
    path.write_text(chain(100).to_json())
    assert main(["sweep", str(path), "--budgets", "100%,min", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [p["planned_peak_bytes"] for p in found["points"]] == [510, 310]
    assert found["knee"] is None


@pytest.mark.parametrize(
    ("budgets", "said"), [(",", "name budgets"), ("90%,lots", "cannot read 'lots'")]
)
def test_sweep_refuses_bad_budgets_before_the_capture(
    budgets: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["sweep", str(tmp_path / "none.py"), "--budgets", budgets]) == 2
    assert said in capsys.readouterr().err


def test_maxbatch_finds_where_the_step_stops_to_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(write_model_file(tmp_path))
    argv = ["maxbatch", path, "--budget", "1MB", "--solver", "greedy", "--json"]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["planned_batch"] > found["unplanned_batch"] > 0
    assert found["planned_peak_bytes"] <= 10**6 < found["unplanned_peak_bytes"]
    for more, fits in ((0, True), (1, False)):
        torch._dynamo.reset()
        batch = str(found["unplanned_batch"] + more)
        assert main(["estimate", path, "--batch", batch, "--json"]) == 0
        peak = json.loads(capsys.readouterr().out)["unplanned_peak_bytes"]
        assert (peak <= 10**6) == fits


def test_maxbatch_says_when_nothing_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(write_model_file(tmp_path))
    assert main(["maxbatch", path, "--budget", "1kB", "--solver", "greedy"]) == 0
    assert "no batch fits 1.00 kB: one of 1 takes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "give a --budget such as 8GB, or a --device"),
        (("--budget", "50%"), "must be a size such as 8GB"),
        (("--budget", "20GB", "--device", "t4"), "more than t4 has"),
        (("--budget", "1MB"), "takes no batch size"),
    ],
)
def test_maxbatch_refuses_in_one_line(
    more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write_model_file(tmp_path, TEXT.replace("batch=512", "").replace("batch, ", "512, "))
    assert main(["maxbatch", str(path), *more]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err
