"""A ViT-H/14, 632 million parameters, random weights, for a device that you need not have.

Run: memplan compile examples/vit_h.py --budget 20GB --device rtx4090
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import ViTConfig, ViTForImageClassification

FULL = {"batch": 32, "pixels": 224, "patch": 14, "layers": 32, "width": 1280, "heads": 16}
FULL |= {"classes": 1000}
SMALL = {"batch": 2, "pixels": 28, "layers": 2, "width": 64, "heads": 2, "classes": 10}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    config = ViTConfig(
        image_size=size["pixels"],
        patch_size=size["patch"],
        num_hidden_layers=size["layers"],
        hidden_size=size["width"],
        num_attention_heads=size["heads"],
        intermediate_size=4 * size["width"],
        num_labels=size["classes"],
    )
    return ViTForImageClassification(config).train()


def example_inputs(**sizes: int) -> tuple[Tensor, Tensor]:
    """Return images for the model and classes for the loss."""
    size = FULL | sizes
    pixels = size["pixels"]
    images = torch.rand(size["batch"], 3, pixels, pixels)
    return images, torch.randint(size["classes"], (size["batch"],))


def loss(output: object, classes: Tensor) -> Tensor:
    """Return the mean cross entropy; the last input is its target."""
    return functional.cross_entropy(output.logits, classes)


def optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW with its fused kernel, which takes no memory besides the state."""
    return torch.optim.AdamW(params, lr=1e-3, fused=True)
