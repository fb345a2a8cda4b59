"""GPT-2 XL, 1.56 billion parameters, random weights, for a device that you need not have.

Run: memplan compile examples/gpt2_xl.py --budget 40GB --device a100-80gb
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

FULL = {"batch": 8, "tokens": 1024, "layers": 48, "width": 1600, "heads": 25, "words": 50257}
SMALL = {"batch": 2, "tokens": 32, "layers": 2, "width": 64, "heads": 2, "words": 512}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode; fused attention needs its dropout off."""
    size = FULL | sizes
    config = GPT2Config(
        n_layer=size["layers"],
        n_embd=size["width"],
        n_head=size["heads"],
        n_positions=max(1024, size["tokens"]),
        vocab_size=size["words"],
        attn_pdrop=0.0,
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
    return torch.optim.AdamW(params, lr=3e-4, fused=True)
