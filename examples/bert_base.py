"""BERT base as a masked language model, 110 million parameters, random weights, dropout on.

Run: memplan compile examples/bert_base.py --budget 50%
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM

FULL = {"batch": 16, "tokens": 128, "layers": 12, "width": 768, "heads": 12, "words": 30522}
SMALL = {"batch": 2, "tokens": 32, "layers": 2, "width": 64, "heads": 2, "words": 512}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    config = BertConfig(
        num_hidden_layers=size["layers"],
        hidden_size=size["width"],
        intermediate_size=4 * size["width"],
        num_attention_heads=size["heads"],
        vocab_size=size["words"],
    )
    return BertForMaskedLM(config).train()


def example_inputs(**sizes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids and attention mask for the model, and the hidden words for the loss."""
    size = FULL | sizes
    shape = (size["batch"], size["tokens"])
    words = torch.randint(5, size["words"], shape)
    hidden = torch.rand(shape) < 0.15
    return (
        words.masked_fill(hidden, 4),
        torch.ones(shape, dtype=torch.int64),
        words.masked_fill(~hidden, -100),  # -100: no loss for a word that was not hidden
    )


def loss(output: object, words: Tensor) -> Tensor:
    """Return the mean cross entropy over the hidden words; the last input is its target."""
    return functional.cross_entropy(output.logits.flatten(0, 1), words.flatten())


def optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer whose state counts towards the budget."""
    return torch.optim.AdamW(params, lr=1e-4)
