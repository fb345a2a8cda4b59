"""ResNet-50, 26 million parameters, random weights, batch norm in training mode.

Run: memplan compile examples/resnet50.py --budget 50%
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import ResNetConfig, ResNetForImageClassification

FULL = {"batch": 8, "pixels": 224, "layers": 50, "width": 64, "classes": 1000}
SMALL = {"batch": 2, "pixels": 64, "width": 8, "classes": 10}
RESNET_152 = {"layers": 152}
DEPTHS = {50: [3, 4, 6, 3], 101: [3, 4, 23, 3], 152: [3, 8, 36, 3]}


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    width = size["width"]
    config = ResNetConfig(
        embedding_size=width,
        hidden_sizes=[4 * width, 8 * width, 16 * width, 32 * width],
        depths=DEPTHS[size["layers"]],
        layer_type="bottleneck",
        num_labels=size["classes"],
    )
    return ResNetForImageClassification(config).train()


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
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)
