"""Copies into a part of a tensor, as the tracer writes them: without the write.

The operator that stands for `x[0].copy_(y)` in a traced step makes a whole new storage like that
of `x`, which tensors without memory do not count. The operator here makes the part alone.
"""

from __future__ import annotations

from typing import Any

import torch

_copy = torch.ops.aten.copy.default
_library = torch.library.Library("memplan", "FRAGMENT")
_library.define("copied_part(Tensor self, Tensor source) -> Tensor")


def _part(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _copied_part(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _part(x, source).copy_(source)


for _key in ("CPU", "CUDA"):
    _library.impl("copied_part", _copied_part, _key)
torch.library.register_fake("memplan::copied_part", _part, lib=_library)


def _traced(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    if x.untyped_storage().nbytes() == x.numel() * x.itemsize:
        return NotImplemented
    return torch.ops.memplan.copied_part(x, source)


COPIES: dict[Any, Any] = {_copy: _traced}
"""What stands in a captured graph in place of an operator."""
