"""A Llama of eight layers, 57 million parameters, random weights, grouped-query attention.

Run: memplan compile examples/llama_8layer.py --budget 50%
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

FULL = {"batch": 2, "tokens": 512, "layers": 8, "width": 512, "heads": 8, "words": 32000}
SMALL = {"batch": 2, "tokens": 32, "layers": 2, "width": 64, "heads": 4, "words": 512}
LLAMA_3_8B = {"batch": 1, "tokens": 4096, "layers": 32, "width": 4096, "heads": 32}
LLAMA_3_8B |= {"groups": 8, "inner": 14336, "words": 128256}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    config = LlamaConfig(
        num_hidden_layers=size["layers"],
        hidden_size=size["width"],
        intermediate_size=size.get("inner", 11 * size["width"] // 4),
        num_attention_heads=size["heads"],
        num_key_value_heads=size.get("groups", size["heads"] // 2),
        max_position_embeddings=max(2048, size["tokens"]),
        vocab_size=size["words"],
        use_cache=False,
    )
    return LlamaForCausalLM(config).train()


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
