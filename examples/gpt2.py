"""GPT-2 small, 124 million parameters, random weights, dropout on.

Run: memplan compile examples/gpt2.py --budget 50%
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

FULL = {"batch": 8, "tokens": 256, "layers": 12, "width": 768, "heads": 12, "words": 50257}
SMALL = {"batch": 2, "tokens": 32, "layers": 2, "width": 64, "heads": 2, "words": 512}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    config = GPT2Config(
        n_layer=size["layers"],
        n_embd=size["width"],
        n_head=size["heads"],
        n_positions=max(1024, size["tokens"]),
        vocab_size=size["words"],
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return GPT2LMHeadModel(config).train()


def example_inputs(**sizes: int) -> tuple[Tensor, Tensor]:
    """Return token ids for the model, and for the loss the token that follows each."""
    size = FULL | sizes
    text = torch.randint(size["words"], (size["batch"], size["tokens"] + 1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss(output: object, following: Tensor) -> Tensor:
    """Return the mean cross entropy; the last input is its target."""
    return functional.cross_entropy(output.logits.flatten(0, 1), following.flatten())


def optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer whose state counts towards the budget."""
    return torch.optim.AdamW(params, lr=3e-4)
