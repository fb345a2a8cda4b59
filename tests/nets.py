"""Small modules, one for each thing that makes capture or recomputation hard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Dropouts(nn.Module):
    """Random draws between other ops, one of them never read."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            torch.rand(3)
            x = functional.dropout(torch.tanh(layer(x)), 0.3)
        return x.square().mean()


class Convolutions(nn.Module):
    """Batch normalisation in training mode, in-place activations, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(
            *[
                nn.Sequential(
                    nn.Conv2d(i, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
                )
                for i in (3, 8, 8)
            ]
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(self.stages(x), 2).mean((2, 3))
        return functional.cross_entropy(self.head(x), y)


class Attention(nn.Module):
    """Tied embedding, split views of one storage, attention, layer norm, integer inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for _ in range(3):
            q, k, v = (
                t.view(2, 8, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).split(16, -1)
            )
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + a.transpose(1, 2).reshape(2, 8, 16)
        return functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


class ReadThenUpdated(nn.Module):
    """A buffer that is read, then updated: running its reader again would read the new value."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.count = nn.Buffer(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x) + torch.sin(self.count))
        self.count.add_(1.0)
        return x.square().mean()


class Frozen(nn.Module):
    """Frozen and unused parameters, a constant, two outputs of which one has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.layers[0].requires_grad_(False)
        self.unused = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = torch.sin(layer(x)) * torch.tensor(0.5)
        return x.square().sum(), x.argmax(-1)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return torch.round(x * 4) / 4 * w

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return 0.5 * (g * w).clamp(-0.1, 0.1), (g * x).sum(0)


class CustomBackward(nn.Module):
    """A backward pass of the user's own, which the tracer tags as forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = _StraightThrough.apply(torch.tanh(layer(x)), self.scale)  # type: ignore[no-untyped-call]
        return (x - 0.3).square().sum()


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]


CASES = {
    "dropouts": Case(Dropouts, lambda: (torch.randn(256, 128),)),
    "convolutions": Case(
        Convolutions, lambda: (torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,)))
    ),
    "attention": Case(Attention, lambda: (torch.randint(0, 30, (2, 8)),)),
    "read-then-updated": Case(ReadThenUpdated, lambda: (torch.randn(8, 16),)),
    "custom-backward": Case(CustomBackward, lambda: (torch.randn(8, 16),)),
    "frozen": Case(Frozen, lambda: (torch.randn(8, 16),)),
}
