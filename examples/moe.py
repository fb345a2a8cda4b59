"""A mixture of experts: four of Mixtral's layers, 6 billion parameters, 2 of 8 experts a token.

Run: memplan compile examples/moe.py --budget 60GB --device h100
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import MixtralConfig, MixtralForCausalLM

FULL = {"batch": 8, "tokens": 4096, "layers": 4, "width": 4096, "heads": 32}
FULL |= {"groups": 8, "inner": 14336, "experts": 8, "words": 32000}
SMALL = {"batch": 2, "tokens": 32, "layers": 2, "width": 64, "heads": 4}
SMALL |= {"groups": 2, "inner": 128, "experts": 4, "words": 512}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode, in bfloat16.

    Tokens are sorted by expert and multiplied in groups, so that all shapes are static.
    """
    size = FULL | sizes
    config = MixtralConfig(
        num_hidden_layers=size["layers"],
        hidden_size=size["width"],
        intermediate_size=size["inner"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["groups"],
        num_local_experts=size["experts"],
        num_experts_per_tok=2,
        vocab_size=size["words"],
        use_cache=False,
        experts_implementation="grouped_mm",
    )
    return MixtralForCausalLM(config).to(torch.bfloat16).train()


def example_inputs(**sizes: int) -> tuple[Tensor, Tensor]:
    """Return token ids for the model, and for the loss the token that follows each."""
    size = FULL | sizes
    text = torch.randint(size["words"], (size["batch"], size["tokens"] + 1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss(output: object, following: Tensor) -> Tensor:
    """Return the mean cross entropy; the last input is its target."""
    return functional.cross_entropy(output.logits.flatten(0, 1), following.flatten())


def optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW with its fused kernel, which takes no memory besides the state."""
    return torch.optim.AdamW(params, lr=3e-4, fused=True)
