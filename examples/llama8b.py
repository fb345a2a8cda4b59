"""Llama 3 8B: 8.03 billion parameters in bfloat16, for a device that you need not have.

Run: memplan compile examples/llama8b.py --budget 70GB --device h100
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

FULL = {"batch": 1, "tokens": 8192, "layers": 32, "width": 4096, "heads": 32}
FULL |= {"groups": 8, "inner": 14336, "words": 128256}
SMALL = {"batch": 2, "tokens": 32, "layers": 2, "width": 64, "heads": 4}
SMALL |= {"groups": 2, "inner": 176, "words": 512}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode; every weight is bfloat16."""
    size = FULL | sizes
    config = LlamaConfig(
        num_hidden_layers=size["layers"],
        hidden_size=size["width"],
        intermediate_size=size["inner"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["groups"],
        max_position_embeddings=max(8192, size["tokens"]),
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        vocab_size=size["words"],
        use_cache=False,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).train()


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
