import json
from pathlib import Path

import pytest
import torch

from memplan.cli import main
from memplan.codegen.swap.settings import SwapSettings
from memplan.graph_capture.device_files import parse_devices
from tests.memplan.commands.model_files import TEXT, write_model_file
from tests.planner.test_max_batch import chain

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_a_plan_for_another_device_is_the_same_with_and_without_weights(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(write_model_file(tmp_path))
    plans = []
    for more in (("--device", "t4"), ("--offline",)):
        argv = ["compile", path, "--budget", "90%", "--solver", "greedy", "--json", *more]
        assert main(argv) == 0
        captured = capsys.readouterr()
        assert "captured without weights" in captured.err
        plans.append(json.loads(captured.out))
    real = ["compile", path, "--budget", "90%", "--solver", "greedy", "--profile", "analytic"]
    assert main([*real, "--json"]) == 0
    plans.append(json.loads(capsys.readouterr().out))
    assert plans[1]["planned_peak_bytes"] == plans[2]["planned_peak_bytes"]
    assert plans[1]["planned_time_ns"] == plans[2]["planned_time_ns"]
    assert plans[0]["unplanned_peak_bytes"] % 512 == 0


def test_an_offline_plan_runs_where_the_weights_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, folder = str(write_model_file(tmp_path)), str(tmp_path / "plan")
    argv = ["compile", path, "--budget", "90%", "--solver", "greedy", "--offline", "-o", folder]
    assert main(argv) == 0
    torch._dynamo.reset()
    assert main(["check", folder, path]) == 0
    assert "bit-identical" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--offline", "--verify"), "no weights to --verify with"),
        (("--budget", "60GB", "--device", "a100-40gb"), "more than a100-40gb has: 42.95 GB"),
        (("--device", "h1000"), "did you mean h100"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(write_model_file(tmp_path, TEXT))
    assert main(["compile", path, "--budget", "90%", *more]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err


def test_moving_needs_a_link(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, device = str(write_model_file(tmp_path)), tmp_path / "gpu.toml"
    fields = "memory_gib = 8\nflops = {float32 = 10}\nbandwidth = 300\nlaunch_us = 3\n"
    device.write_text(f"[gpu]\n{fields}")
    argv = ["compile", path, "--budget", "90%", "--device", str(device), "--swap", "host"]
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "gpu has no host_link" in err
    assert "--link 25GB/s" in err


def test_the_link_is_that_of_the_device(tmp_path: Path) -> None:
    fields = "memory_gib = 8\nflops = {float32 = 10}\nbandwidth = 300\nlaunch_us = 3\n"
    gpu = parse_devices(f"[gpu]\n{fields}host_link = 12\n", "x")["gpu"]
    graph = chain(100)
    for link, speed in ((None, 12 * 10**9), ("3GB/s", 3 * 10**9)):
        settings = SwapSettings.read("host", None, None, link)
        (tier,) = settings.tiers(graph, gpu, measured=False)
        assert (tier.write_bytes_per_s, tier.read_bytes_per_s) == (speed, speed)
