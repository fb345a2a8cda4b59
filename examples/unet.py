"""A U-Net for segmentation in plain PyTorch: long skips keep early activations alive.

Run: memplan compile examples/unet.py --budget 50%
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

FULL = {"batch": 4, "pixels": 256, "width": 32, "depth": 4, "classes": 2}
LARGE = {"batch": 8, "pixels": 512, "width": 64, "depth": 5}
SMALL = {"batch": 2, "pixels": 32, "width": 4, "depth": 2, "classes": 2}


def double_convolution(channels: int, wider: int) -> nn.Sequential:
    """Return two 3x3 convolutions, each with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for fan_in in (channels, wider):
        layers += [nn.Conv2d(fan_in, wider, kernel_size=3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(wider), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Halve the image `depth` times, then double it again beside what was there before."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        sources = [3, *widths]
        self.down = nn.ModuleList(map(double_convolution, sources, widths))
        rising = list(zip(widths[1:], widths, strict=False))[::-1]
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in rising)
        self.up = nn.ModuleList(double_convolution(2 * b, b) for _, b in rising)
        self.classify = nn.Conv2d(width, classes, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, 3, height, width) to (batch, classes, height, width)."""
        skips = []
        for block in self.down[:-1]:
            x = block(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([skips.pop(), grow(x)], dim=1))
        return self.classify(x)


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode."""
    size = FULL | sizes
    return UNet(size["width"], size["depth"], size["classes"]).train()


def example_inputs(**sizes: int) -> tuple[Tensor, Tensor]:
    """Return images for the model, and the class of each pixel for the loss."""
    size = FULL | sizes
    shape = (size["batch"], size["pixels"], size["pixels"])
    return torch.rand(size["batch"], 3, *shape[1:]), torch.randint(size["classes"], shape)


def loss(output: Tensor, classes: Tensor) -> Tensor:
    """Return the mean cross entropy over the pixels; the last input is its target."""
    return functional.cross_entropy(output, classes)
