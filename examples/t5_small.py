"""T5 small, encoder and decoder, 61 million parameters, random weights, dropout on.

The inputs are keyword arguments, and the model computes its own loss.

Run: memplan compile examples/t5_small.py --budget 50%
"""

import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

FULL = {"batch": 8, "tokens": 128, "layers": 6, "width": 512, "heads": 8, "words": 32128}
SMALL = {"batch": 2, "tokens": 32, "layers": 2, "width": 64, "heads": 2, "words": 512}

T5_LARGE = {"layers": 24, "width": 1024, "heads": 16}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    config = T5Config(
        num_layers=size["layers"],
        d_model=size["width"],
        d_ff=4 * size["width"],
        d_kv=size["width"] // size["heads"],
        num_heads=size["heads"],
        vocab_size=size["words"],
        decoder_start_token_id=0,
        use_cache=False,
    )
    return T5ForConditionalGeneration(config).train()


def example_inputs(**sizes: int) -> dict[str, Tensor]:
    """Return the model's arguments by name."""
    size = FULL | sizes
    shape = (size["batch"], size["tokens"])
    return {
        "input_ids": torch.randint(2, size["words"], shape),
        "labels": torch.randint(2, size["words"], shape),
    }


def loss(output: object) -> Tensor:
    """Return the loss that the model computed from `labels`."""
    return output.loss


def optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer whose state counts towards the budget."""
    return torch.optim.AdamW(params, lr=1e-3)
