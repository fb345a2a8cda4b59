"""Makes models of tensors that have shapes and take no memory.

That is torch's `FakeTensorMode`, in which `model.to(torch.bfloat16)` fails, however: a module
converts fake parameters by swapping them with the converted ones, and torch refuses to swap a
tensor that the mode knows. Here a conversion puts new parameters in the place of the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode


@contextmanager
def without_memory(mode: FakeTensorMode) -> Iterator[None]:
    """Make models and inputs of fake tensors, and let modules be converted."""
    plain = nn.Module._apply
    nn.Module._apply = _replacing_apply()  # type: ignore[method-assign]
    try:
        with mode:
            yield
    finally:
        nn.Module._apply = plain  # type: ignore[method-assign]


def _replacing_apply() -> Callable[..., nn.Module]:
    """Return `nn.Module._apply` for fake parameters; one that is shared stays shared."""
    converted: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}

    def replacement(parameter: nn.Parameter, fn: Callable[[Any], Any]) -> nn.Parameter:
        # The old parameter is held, so that no other one gets its id.
        if id(parameter) not in converted:
            with torch.no_grad():
                made = nn.Parameter(fn(parameter), parameter.requires_grad)
            converted[id(parameter)] = (parameter, made)
        return converted[id(parameter)][1]

    def apply(module: nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
        if recurse:
            for child in module.children():
                child._apply(fn)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = replacement(parameter, fn)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = fn(buffer)
        return module

    return apply
