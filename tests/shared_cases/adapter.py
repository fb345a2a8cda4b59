"""What the shared cases call: memplan as a function of a model and its example inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

import memplan


def at_least_memory(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], loss: Callable[..., Any]
) -> nn.Module:
    """Return `model` planned for the smallest budget; the case takes the loss of its output."""
    return memplan.compile(
        model,
        args,
        kwargs,
        budget="min",
        solver="greedy",
        profile="analytic",
        time_limit=3,
    )
