"""VGG-16 in plain PyTorch, 138 million parameters, dropout on.

Run: memplan compile examples/vgg16.py --budget 60%
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

FULL = {"batch": 4, "pixels": 224, "width": 64, "hidden": 4096, "classes": 1000}
SMALL = {"batch": 2, "pixels": 32, "width": 4, "hidden": 32, "classes": 10}

BLOCKS = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))
"""Channels as a multiple of the width, and number of convolutions."""


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    layers, channels = [], 3
    for multiple, convolutions in BLOCKS:
        for _ in range(convolutions):
            wider = multiple * size["width"]
            layers += [nn.Conv2d(channels, wider, kernel_size=3, padding=1), nn.ReLU()]
            channels = wider
        layers.append(nn.MaxPool2d(2))
    features, hidden = channels * (size["pixels"] // 32) ** 2, size["hidden"]
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        *(nn.Linear(features, hidden), nn.ReLU(), nn.Dropout()),
        *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout()),
        nn.Linear(hidden, size["classes"]),
    ).train()


def example_inputs(**sizes: int) -> tuple[Tensor, Tensor]:
    """Return images for the model, and their classes for the loss."""
    size = FULL | sizes
    images = torch.rand(size["batch"], 3, size["pixels"], size["pixels"])
    return images, torch.randint(size["classes"], (size["batch"],))


def loss(output: Tensor, classes: Tensor) -> Tensor:
    """Return the mean cross entropy; the last input is its target."""
    return functional.cross_entropy(output, classes)
