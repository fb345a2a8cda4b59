"""Moving tensors from the outside: `memplan.compile`, saved plans, the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memplan
from memplan.cli import main
from memplan.codegen.check import check
from memplan.codegen.swap.settings import SwapSettings
from memplan.errors import BudgetSyntaxError, MemplanError, UsageError
from memplan.graph_capture.devices import find_device
from memplan.planner.schedule import swaps_in
from tests.graphs import unet

MODEL_FILE = """
import torch
from torch import nn

def model():
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)])

def example_inputs():
    return (torch.randn(512, 64),)

def loss(output):
    return output.square().mean()
"""


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def net() -> nn.Module:
    layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.2)) for _ in range(6)]
    return nn.Sequential(*layers)


def loss(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


@pytest.mark.parametrize(
    "swap", [{"swap": "disk"}, {"swap": "host", "link": "2GB/s"}], ids=["disk", "host"]
)
def test_compile_save_and_load(swap: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = net(), torch.randn(512, 64)
    if swap["swap"] == "disk":
        swap["swap_dir"] = str(tmp_path)
    module = memplan.compile(model, x, budget="60%", loss=loss, solver="lms", **swap)
    assert swaps_in(module.plan.schedule)
    assert module.plan.planned_peak_bytes <= module.plan.budget_bytes
    result = check(module, (x,), steps=2, timed_steps=0)
    assert result.identical
    assert result.measured_peak_bytes == pytest.approx(module.plan.planned_peak_bytes, rel=0.01)
    module.save(tmp_path / "plan")
    again = memplan.load(tmp_path / "plan", model, loss=loss, swap_dir=tmp_path)
    torch.manual_seed(1)
    module(x).backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    again(x).backward()
    found = [p.grad for p in model.parameters()]
    assert all(
        a is not None and b is not None and torch.equal(a, b)
        for a, b in zip(found, expected, strict=True)
    )


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.py"
    file.write_text(MODEL_FILE, encoding="utf-8")
    options = ["--budget", "60%", "--profile", "analytic", "--solver", "lms", "--json"]
    swap = ["--swap", "disk", "--swap-dir", str(tmp_path), "--link", "1GB/s"]
    assert main(["compile", str(file), *options, *swap, "--verify"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["swapped_bytes"] > 0
    assert printed["bytes"]["swap_buffers"] == printed["swap_buffer_bytes"] > 0
    assert printed["verify"]["gradients_identical"] is True
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["net.py"]


def test_what_solvers_may_do_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solvers", "--json"]) == 0
    may = {row["name"]: row["may"] for row in json.loads(capsys.readouterr().out)}
    assert may["save-on-cpu"] == ["keep", "swap"]
    assert may["joint"] == ["keep", "recompute", "swap"]
    assert may["greedy"] == ["keep", "recompute"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"kind": "tape"}, UsageError),
        ({"kind": "disk", "folder": "/no/such/folder"}, UsageError),
        ({"kind": "host", "link": "fast"}, BudgetSyntaxError),
        ({"kind": "host", "host_memory": "-1GB"}, BudgetSyntaxError),
    ],
)
def test_settings_that_cannot_be_meant(wrong: dict[str, str], error: type[MemplanError]) -> None:
    with pytest.raises(error):
        SwapSettings.read(**wrong)


def test_settings_become_tiers(tmp_path: Path) -> None:
    graph, cpu = unet(2), find_device("cpu")
    assert SwapSettings.read().tiers(graph, cpu, measured=False) == ()
    (host,) = SwapSettings.read("host", None, "3GB", "25GB/s").tiers(graph, cpu, measured=False)
    assert (host.name, host.capacity_bytes, host.buffer_bytes) == ("host", 3 * 10**9, 0)
    assert host.write_bytes_per_s == host.read_bytes_per_s == 25 * 10**9
    (disk,) = SwapSettings.read("disk", tmp_path).tiers(graph, cpu, measured=False)
    assert (disk.name, disk.buffer_bytes) == ("disk", 2 * 4096)
    assert disk.read_bytes_per_s > disk.write_bytes_per_s
