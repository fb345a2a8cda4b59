"""Keeps the layout of what is written into, where the operator that the tracer takes does not.

A traced step writes into nothing: `x.index_add_(...)` becomes `x.index_add(...)`, whose kernel
lays its result out row by row, whatever the layout of `x` is. What reads it then sums in another
order than plain PyTorch. Here the result is copied into the layout of `x`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey

_aten = torch.ops.aten
_PAIRS = {
    _aten.index_add_.default: _aten.index_add.default,
    _aten.masked_fill_.Scalar: _aten.masked_fill.Scalar,
    _aten.masked_fill_.Tensor: _aten.masked_fill.Tensor,
}


def _traced(writing: Any, functional: Any) -> Callable[..., Any]:
    def traced(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.is_contiguous():
            return writing._op_dk(DispatchKey.AutogradCPU, x, *args, **kwargs)
        return x.copy_(functional(x, *args, **kwargs))

    return traced


WRITES: dict[Any, Callable[..., Any]] = {
    writing: _traced(writing, functional) for writing, functional in _PAIRS.items()
}
"""What traces an operator, above autograd."""
