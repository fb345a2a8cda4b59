"""PEFT: only the adapters of a GPT-2 are trained; frozen weights get no gradient in the plan.

python examples/integrations/lora.py
"""

from __future__ import annotations

import copy
import sys

import torch
from torch import nn
from torch.nn import functional

import memplan

try:
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2Model
except ModuleNotFoundError:
    sys.exit(
        "this example needs PEFT and transformers: run `pip install 'memplan[peft,transformers]'`"
    )

BATCH, TOKENS, WORDS = 4, 32, 128


def build() -> nn.Module:
    """Return a small GPT-2 with adapters of rank 4 in its attention."""
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
    adapters = LoraConfig(r=4, target_modules=["c_attn"], lora_dropout=0.1, fan_in_fan_out=True)
    return get_peft_model(GPT2Model(config), adapters).train()


def loss(output: object, following: torch.Tensor) -> torch.Tensor:
    """Return a loss of the hidden states."""
    hidden: torch.Tensor = output.last_hidden_state  # type: ignore[attr-defined]
    return functional.cross_entropy(hidden.flatten(0, 1), following.flatten())


def main() -> int:
    """Take two steps with and without a plan."""
    model = build()
    plain = copy.deepcopy(model)
    ids = torch.randint(WORDS, (BATCH, TOKENS))
    following = torch.randint(32, (BATCH, TOKENS))
    planned = memplan.compile(
        model,
        (ids, following),
        loss=loss,
        budget="min",
        optimizer="adamw",
        solver="greedy",
        profile="analytic",
    )

    def plain_step(ids: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        return loss(plain(ids), following)

    for run, trained in ((planned, model), (plain_step, plain)):
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW([p for p in trained.parameters() if p.requires_grad])
        for _ in range(2):
            optimizer.zero_grad()
            run(ids, following).backward()
            optimizer.step()
    trained_count = 0
    for mine, alone in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, alone)
        trained_count += mine.grad is not None
    print(f"{planned.plan.recomputed_ops} runs repeated, {trained_count} adapters are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
