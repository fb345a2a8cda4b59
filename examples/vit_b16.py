"""Vision Transformer B/16, 86 million parameters, random weights.

Run: memplan compile examples/vit_b16.py --budget 50%
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import ViTConfig, ViTForImageClassification

FULL = {"batch": 16, "pixels": 224, "patch": 16, "layers": 12, "width": 768, "heads": 12}
FULL |= {"classes": 1000}
SMALL = {"batch": 2, "pixels": 32, "layers": 2, "width": 64, "heads": 2, "classes": 10}

VIT_H14 = {"patch": 14, "layers": 32, "width": 1280, "heads": 16}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    config = ViTConfig(
        num_hidden_layers=size["layers"],
        hidden_size=size["width"],
        intermediate_size=4 * size["width"],
        num_attention_heads=size["heads"],
        image_size=size["pixels"],
        patch_size=size["patch"],
        num_labels=size["classes"],
    )
    return ViTForImageClassification(config).train()


def example_inputs(**sizes: int) -> tuple[Tensor, Tensor]:
    """Return images for the model, and their classes for the loss."""
    size = FULL | sizes
    images = torch.rand(size["batch"], 3, size["pixels"], size["pixels"])
    return images, torch.randint(size["classes"], (size["batch"],))


def loss(output: object, classes: Tensor) -> Tensor:
    """Return the mean cross entropy; the last input is its target."""
    return functional.cross_entropy(output.logits, classes)


def optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer whose state counts towards the budget."""
    return torch.optim.AdamW(params, lr=1e-3)
