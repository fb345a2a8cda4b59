"""Makes models of tensors that have shapes and take no memory.

That is torch's `FakeTensorMode`, in which `model.to(torch.bfloat16)` fails, however: a module
converts fake parameters by swapping them with the converted ones, and torch refuses to swap a
tensor that the mode knows. Here a conversion puts new parameters in the place of the old ones.
And `trunc_normal_` looks at the values that it drew, of which there are none: here it draws none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode


@contextmanager
def without_memory(mode: FakeTensorMode) -> Iterator[None]:
    """Make models and inputs of fake tensors, and let modules be converted."""
    with (
        patch.object(nn.Module, "_apply", _replacing_apply()),
        patch.object(nn.init, "_no_grad_trunc_normal_", _as_it_is),
        mode,
    ):
        yield


def _as_it_is(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


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
