"""A loop of one's own, with gradients accumulated over micro-batches.

    python examples/integrations/plain_loop.py

Nothing changes but the line that compiles. A model that is trained beside it without a plan ends
with the same parameters, bit by bit.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import torch
from torch import nn

import memplan

MICRO_BATCHES, BATCH, WIDTH = 3, 256, 64


def build() -> nn.Module:
    """Return the model."""
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 1))


def train(run: Callable[..., torch.Tensor], model: nn.Module, batches: torch.Tensor) -> None:
    """Take two optimizer steps, each on the gradients of all micro-batches."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        for part in batches:
            (run(part) / len(batches)).square().mean().backward()
        optimizer.step()


def main() -> int:
    """Train with and without a plan."""
    model, batches = build(), torch.randn(MICRO_BATCHES, BATCH, WIDTH)
    plain = copy.deepcopy(model)
    planned = memplan.compile(
        model, (batches[0],), budget="min", optimizer="adamw", solver="greedy", profile="analytic"
    )
    train(planned, model, batches)
    train(plain, plain, batches)
    for mine, alone in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, alone)
    print(f"{planned.plan.recomputed_ops} runs repeated, parameters are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
