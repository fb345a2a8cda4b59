"""A model that already calls `torch.utils.checkpoint` on its blocks.

    python examples/integrations/checkpointed.py

The tracer sees the operations inside, and the plan alone decides which are run again.
"""

from __future__ import annotations

import copy
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import memplan

BATCH, WIDTH = 256, 64


class Checkpointed(nn.Module):
    """Four blocks with a checkpoint each."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)
        )
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one number for each row of `x`: (rows, WIDTH)."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def main() -> int:
    """Take a step with and without a plan."""
    model, batch = Checkpointed(), torch.randn(BATCH, WIDTH)
    plain = copy.deepcopy(model)
    planned = memplan.compile(model, (batch,), budget="min", solver="greedy", profile="analytic")
    for run in (planned, plain):
        torch.manual_seed(1)
        run(batch).square().mean().backward()
    for mine, alone in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine.grad, alone.grad)
    print(f"{planned.plan.recomputed_ops} runs repeated, gradients are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
