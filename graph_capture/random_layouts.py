"""Random draws into a tensor whose memory is not in the order of its indices.

`x.uniform_()` fills `x` as it lies in memory, and some kernels draw otherwise where it has gaps.
The tracer turns it into an operator that returns a new tensor, which lies in memory in another
way, so that its elements get other numbers. The operators here return a tensor with the strides
that the written one has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten
_WRITING = {
    _aten.bernoulli.p: _aten.bernoulli_.float,
    _aten.bernoulli.Tensor: _aten.bernoulli_.Tensor,
    _aten.cauchy.default: _aten.cauchy_.default,
    _aten.exponential.default: _aten.exponential_.default,
    _aten.geometric.default: _aten.geometric_.default,
    _aten.log_normal.default: _aten.log_normal_.default,
    _aten.normal_functional.default: _aten.normal_.default,
    _aten.random.default: _aten.random_.default,
    getattr(_aten.random, "from"): getattr(_aten.random_, "from"),
    _aten.random.to: _aten.random_.to,
    _aten.uniform.default: _aten.uniform_.default,
}
_library = torch.library.Library("memplan", "FRAGMENT")


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _defined(functional: Any, writing: Any) -> Callable[..., Any]:
    """Define the operator that stands for `functional` and return what calls it where it must."""
    name = f"strided_{functional.__name__.replace('.', '_')}"
    arguments = str(functional._schema).partition("(")[2]
    _library.define(f"{name}({arguments}", tags=(torch.Tag.nondeterministic_seeded,))

    def run(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        made: torch.Tensor = writing(_like(x), *args, **kwargs)
        return made

    def shape(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return _like(x)

    _library.impl(name, run, "CPU")
    _library.impl(name, run, "CUDA")
    torch.library.register_fake(f"memplan::{name}", shape, lib=_library)
    operator = getattr(torch.ops.memplan, name).default

    def traced(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if x.is_contiguous() else operator(x, *args, **kwargs)

    return traced


RANDOM_KERNELS: dict[Any, Callable[..., Any]] = {
    functional: _defined(functional, writing) for functional, writing in _WRITING.items()
}
"""What stands in a captured graph in place of an operator."""
