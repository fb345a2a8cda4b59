"""A loop by Hugging Face Accelerate: the planned module is prepared like any other.

python examples/integrations/accelerate_loop.py
"""

from __future__ import annotations

import copy
import sys

import torch
from torch import nn

import memplan

try:
    from accelerate import Accelerator
except ModuleNotFoundError:
    sys.exit("this example needs Accelerate: run `pip install 'memplan[accelerate]'`")

BATCH, WIDTH = 128, 64


def build() -> nn.Module:
    """Return the model."""
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 1))


def train(model: nn.Module, rows: torch.Tensor) -> None:
    """Train with two micro-batches an optimizer step."""
    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH)  # type: ignore[arg-type]
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()


def main() -> int:
    """Train with and without a plan."""
    model, rows = build(), torch.randn(4 * BATCH, WIDTH)
    plain = copy.deepcopy(model)
    planned = memplan.compile(
        model,
        (rows[:BATCH],),
        budget="min",
        optimizer="adamw",
        solver="greedy",
        profile="analytic",
    )
    train(planned, rows)
    train(plain, rows)
    for mine, alone in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, alone)
    assert len(planned.steps) == 1, "the step was planned again"
    print(f"{planned.plan.recomputed_ops} runs repeated, parameters are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
