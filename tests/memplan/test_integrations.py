"""Planned modules inside what training scripts wrap around a model."""

from __future__ import annotations

import copy
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.steps import planned

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "integrations"


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def build() -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.2)) for _ in range(4)]
    return nn.Sequential(*blocks, nn.Linear(8, 2))


def gradients(model: nn.Module) -> list[torch.Tensor]:
    found = [p.grad for p in model.parameters()]
    assert all(g is not None for g in found)
    return [g.clone() for g in found if g is not None]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_gradients_accumulate_over_micro_batches() -> None:
    model, batches = build(), torch.randn(3, 16, 8)
    twin = copy.deepcopy(model)
    optimized = planned(model, [batches[0]])

    def accumulated(step: Callable[..., Any], net: nn.Module) -> list[list[torch.Tensor]]:
        torch.manual_seed(1)
        seen = []
        for part in batches:
            (step(part).square().mean() / len(batches)).backward()
            seen.append(gradients(net))
        return seen

    expected, actual = accumulated(twin, twin), accumulated(optimized, model)
    assert all(same(a, b) for a, b in zip(expected, actual, strict=True))


def test_mixed_precision_with_a_scaled_loss() -> None:
    model, x = build(), torch.randn(16, 8)
    twin = copy.deepcopy(model)

    def step_of(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda batch: run(batch).float().square().mean()

    def trained(step: Callable[..., Any], net: nn.Module) -> list[torch.Tensor]:
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(net.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = step(x)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return [*gradients(net), *(p.detach() for p in net.parameters())]

    expected = trained(step_of(twin), twin)
    assert same(expected, trained(step_of(planned(model, [x])), model))


IN_PROCESS = {
    "plain_loop": (),
    "mixed_precision": (),
    "checkpointed": (),
    "transformers_trainer": ("transformers", "accelerate"),
    "lightning_module": ("lightning",),
    "accelerate_loop": ("accelerate",),
    "lora": ("peft", "transformers"),
}
"""The examples that run in one process, with the libraries that each of them needs."""

TWO_PROCESSES = ("data_parallel", "fully_sharded")


@pytest.mark.parametrize("name", IN_PROCESS)
def test_what_runs_in_one_process(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in IN_PROCESS[name]:
        pytest.importorskip(library)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert specification is not None
        assert specification.loader is not None
        example = importlib.util.module_from_spec(specification)
        # The tracer looks up the module that a model's code is in.
        monkeypatch.setitem(sys.modules, name, example)
        specification.loader.exec_module(example)
        assert example.main() == 0
    shown = [str(w.message) for w in caught if "memplan" in str(w.message) + w.filename]
    assert shown == []
    repeated = re.search(r"(\d+) runs repeated", capsys.readouterr().out)
    assert repeated is not None
    assert int(repeated[1]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_PROCESSES)
def test_gradients_of_two_processes_are_those_of_one(name: str) -> None:
    run = subprocess.run(
        [sys.executable, f"examples/integrations/{name}.py"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert len(re.findall(r"[1-9]\d* runs repeated,", run.stdout)) == 2
    assert run.stdout.count("gradients agree") == 2


def test_the_table_of_the_readme_has_a_row_for_each_example() -> None:
    table = (ROOT / "README.md").read_text().partition("## Works with")[2].partition("\n## ")[0]
    rows = re.findall(r"\(examples/integrations/(\w+)\.py\)", table)
    assert sorted(rows) == sorted([*IN_PROCESS, *TWO_PROCESSES])
    assert sorted(rows) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


def test_a_step_brings_no_warning() -> None:
    """Not through private interfaces of torch either."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUIET_STEP],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""


QUIET_STEP = """
import torch, memplan
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.BatchNorm1d(8), nn.Dropout(0.1))
x = torch.randn(4, 8)
planned = memplan.compile(model, (x,), budget="min", optimizer="adamw", time_limit=3)
planned(x).sum().backward()
"""
