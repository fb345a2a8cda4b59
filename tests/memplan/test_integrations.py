"""Planned modules inside what training scripts wrap around a model."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.steps import planned

ROOT = Path(__file__).parents[2]


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


@pytest.mark.slow
def test_data_parallel_gradients_are_those_of_one_process() -> None:
    run = subprocess.run(
        [sys.executable, "examples/integrations/data_parallel.py"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("gradients agree") == 2
