"""Mixed precision: autocast to bfloat16, a scaled loss, gradients clipped before the update.

python examples/integrations/mixed_precision.py
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import torch
from torch import nn

import memplan

BATCH, WIDTH = 256, 64


def build() -> nn.Module:
    """Return the model."""
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 1))


def train(run: Callable[..., torch.Tensor], model: nn.Module, batch: torch.Tensor) -> None:
    """Take three steps as the documentation of `torch.amp` has them."""
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = run(batch).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def main() -> int:
    """Train with and without a plan."""
    model, batch = build(), torch.randn(BATCH, WIDTH)
    plain = copy.deepcopy(model)
    # The plan is made for what runs inside autocast, so it is made inside autocast.
    with torch.autocast("cpu", torch.bfloat16):
        planned = memplan.compile(
            model, (batch,), budget="min", solver="greedy", profile="analytic"
        )
    train(planned, model, batch)
    train(plain, plain, batch)
    for mine, alone in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, alone)
    assert len(planned.steps) == 1, "the step was planned again"
    print(f"{planned.plan.recomputed_ops} runs repeated, parameters are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
