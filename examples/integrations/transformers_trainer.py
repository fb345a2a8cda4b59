"""`transformers.Trainer` with a planned model.

python examples/integrations/transformers_trainer.py
"""

from __future__ import annotations

import copy
import sys
import tempfile
from typing import Any

import torch
from torch import nn

import memplan

try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
except ModuleNotFoundError:
    sys.exit("this example needs transformers: run `pip install 'memplan[transformers]'`")

BATCH, TOKENS, WORDS = 4, 32, 128


def build() -> GPT2LMHeadModel:
    """Return a small GPT-2 with dropout."""
    config = GPT2Config(
        n_layer=2,
        n_embd=32,
        n_head=2,
        n_positions=TOKENS,
        vocab_size=WORDS,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config).train()
    # Without it transformers logs a warning during the step, which cannot be traced.
    model.loss_type = "ForCausalLM"
    return model


def texts() -> list[dict[str, torch.Tensor]]:
    """Return rows as the Trainer's collator takes them."""
    ids = torch.randint(WORDS, (4 * BATCH, TOKENS), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in ids]


def batch_of(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return rows as the model takes them."""
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def train(model: nn.Module, rows: list[dict[str, torch.Tensor]]) -> float:
    """Train for an epoch; return the mean loss."""
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "output_dir": folder,
            "per_device_train_batch_size": BATCH,
            "num_train_epochs": 1,
            "report_to": "none",
            "save_strategy": "no",
            "use_cpu": True,
            "disable_tqdm": True,
            "logging_strategy": "no",
            # The Trainer asks the signature of forward which columns the model reads.
            "remove_unused_columns": False,
            "seed": 1,
        }
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**settings),
            train_dataset=rows,  # type: ignore[arg-type]
            data_collator=batch_of,
        )
        return float(trainer.train().training_loss)


def main() -> int:
    """Train with and without a plan."""
    model, rows = build(), texts()
    plain = copy.deepcopy(model)
    # The Trainer tells the model how many labels all micro-batches of a step have.
    inputs = batch_of(rows[:BATCH])
    inputs["num_items_in_batch"] = torch.tensor(float(inputs["labels"][:, 1:].numel()))
    planned = memplan.compile(
        model,
        (),
        inputs,
        budget="min",
        optimizer="adamw",
        solver="greedy",
        profile="analytic",
    )
    by_plan, alone = train(planned, rows), train(plain, rows)
    print(f"{planned.plan.recomputed_ops} runs repeated, loss {by_plan:.4f}, without {alone:.4f}")
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    return 0


if __name__ == "__main__":
    sys.exit(main())
