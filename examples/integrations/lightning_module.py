"""Lightning: the planned network is the one that the LightningModule calls.

python examples/integrations/lightning_module.py
"""

from __future__ import annotations

import copy
import logging
import sys
import tempfile
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader

import memplan

try:
    import lightning
except ModuleNotFoundError:
    sys.exit("this example needs Lightning: run `pip install 'memplan[lightning]'`")

BATCH, WIDTH = 128, 64


def build() -> nn.Module:
    """Return the network."""
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 1))


class Regression(lightning.LightningModule):
    """What Lightning trains; it does not know whether its network is planned."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def training_step(self, batch: torch.Tensor, _number: int) -> torch.Tensor:
        """Return the loss of one batch."""
        return self.network(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters())


def train(network: nn.Module, rows: torch.Tensor) -> None:
    """Train for an epoch."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Lightning suggests more workers for the loader; four batches need none.
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        torch.manual_seed(1)
        loader = DataLoader(rows, batch_size=BATCH)  # type: ignore[arg-type]
        trainer.fit(Regression(network), loader)


def main() -> int:
    """Train with and without a plan."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    network, rows = build(), torch.randn(4 * BATCH, WIDTH)
    plain = copy.deepcopy(network)
    planned = memplan.compile(
        network,
        (rows[:BATCH],),
        budget="min",
        optimizer="adamw",
        solver="greedy",
        profile="analytic",
    )
    train(planned, rows)
    train(plain, rows)
    for mine, alone in zip(network.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, alone)
    assert len(planned.steps) == 1, "the step was planned again"
    print(f"{planned.plan.recomputed_ops} runs repeated, parameters are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
