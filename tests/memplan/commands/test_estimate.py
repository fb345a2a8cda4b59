import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import memplan
from memplan.cli import main
from memplan.graph_capture.device_files import parse_devices
from tests.memplan.commands.model_files import PARAMETER_BYTES, TEXT, write_model_file

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def estimated(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["estimate", *argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_parts_are_those_counted_by_hand_and_add_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = estimated(capsys, str(write_model_file(tmp_path)))
    assert found["bytes"]["param"] == PARAMETER_BYTES
    # AdamW keeps two values a parameter and a step count of four bytes a tensor.
    assert found["bytes"]["optimizer_state"] == 2 * PARAMETER_BYTES + 8 * 4
    assert found["bytes"]["input"] >= 2 * 512 * 64 * 4
    assert "rounding" not in found["bytes"]
    assert sum(found["bytes"].values()) == found["unplanned_peak_bytes"]
    assert found["total_bytes"] == found["unplanned_peak_bytes"] + found["overhead_bytes"]
    assert found["fits"] is True


def test_the_peak_is_that_of_the_real_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(write_model_file(tmp_path))
    found = estimated(capsys, path)
    assert main(["compile", path, "--budget", "100%", "--profile", "analytic", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert found["unplanned_peak_bytes"] == plan["unplanned_peak_bytes"]


def test_an_accelerator_rounds_and_the_parts_still_add_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = TEXT.replace("64, 64", "65, 65").replace("batch, 64", "batch, 65")
    found = estimated(capsys, str(write_model_file(tmp_path, text)), "--device", "t4")
    assert 0 < found["bytes"]["rounding"] < 100 * 512
    assert found["bytes"]["param"] == 4 * (65 * 65 + 65) * 4
    assert sum(found["bytes"].values()) == found["unplanned_peak_bytes"]
    assert found["unplanned_peak_bytes"] % 512 == 0


def test_accumulated_gradients_are_held_beside_new_ones(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(write_model_file(tmp_path))
    once, twice = estimated(capsys, path), estimated(capsys, path, "--accumulate")
    more = twice["unplanned_peak_bytes"] - once["unplanned_peak_bytes"]
    assert more == PARAMETER_BYTES


def test_a_device_that_is_too_small_is_said_with_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, small = write_model_file(tmp_path), tmp_path / "small.toml"
    fields = "flops = { float32 = 1 }\nbandwidth = 1\nlaunch_us = 1\n"
    need = estimated(capsys, str(path), "--device", "t4")
    for usable, said in ((need["unplanned_peak_bytes"] - 1, "a plan may"), (2**10, "no plan")):
        small.write_text(f"[small]\nmemory_gib = {usable / 2**30:.12f}\n{fields}")
        assert main(["estimate", str(path), "--device", str(small)]) == 0
        out = capsys.readouterr().out
        assert "does not fit" in out
        assert said in out
    assert "parameters" in out
    assert "framework overhead" in out


def test_other_batches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_model_file(tmp_path)
    small, large = (estimated(capsys, str(path), "--batch", n) for n in ("8", "4096"))
    assert small["bytes"]["param"] == large["bytes"]["param"]
    assert small["unplanned_peak_bytes"] < large["unplanned_peak_bytes"]
    path.write_text(TEXT.replace("batch=512", "").replace("batch, ", "512, "))
    assert main(["estimate", str(path), "--batch", "8"]) == 2
    err = capsys.readouterr().err
    assert "takes no batch size; write it as def example_inputs(batch=8)" in err


def test_no_weights_are_allocated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # A layer of 16 TB.
    text = TEXT.replace("nn.Linear(64, 64)", "nn.Linear(64, 2**31), nn.Linear(2**31, 64)")
    found = estimated(capsys, str(write_model_file(tmp_path, text)), "--device", "h100")
    assert found["bytes"]["param"] > 4 * 2 * 64 * 2**31 * 4
    assert (found["fits"], found["may_fit_planned"]) == (False, False)


def test_the_python_api_takes_a_model_without_memory() -> None:
    device = parse_devices(
        "[d]\nmemory_gib = 1\nflops = {float32 = 1}\nbandwidth = 1\nlaunch_us = 1", "x"
    )["d"]
    with FakeTensorMode():
        model, x = nn.Linear(2**10, 2**10), torch.empty(8, 2**10)
    found = memplan.estimate(model, x, loss=torch.sum, optimizer="sgd", device=device)
    assert found.bytes["param"] == (2**20 + 2**10) * 4
    assert found.device is device
    assert found.peak_module == "" or found.graph.ops
    assert found.fits


def test_an_unknown_device_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["estimate", str(write_model_file(tmp_path)), "--device", "a100"]) == 2
    assert (
        "no device is called 'a100'; did you mean a100-40gb, a100-80gb?" in capsys.readouterr().err
    )
