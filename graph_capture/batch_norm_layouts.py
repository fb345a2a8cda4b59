"""How the results of batch normalisation lie in memory on a CPU.

Tensors without memory say that they lie as the input does, or as the gradient that comes in. The
kernels write them contiguous, or with channels last where the input has them so: what reads them
would round otherwise, or copy them at one place and not at another.
Source: `Normalization.cpp` of torch 2.13; tests compare with the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import FakeTensorMode, in_kernel_invocation_manager

_aten = torch.ops.aten
_FORWARD = (
    _aten.native_batch_norm.default,
    _aten._native_batch_norm_legit.default,
    _aten._native_batch_norm_legit.no_stats,
    _aten._native_batch_norm_legit_functional.default,
)
_BACKWARD = _aten.native_batch_norm_backward.default


@contextmanager
def batch_norm_as_run() -> Iterator[None]:
    """Let tensors without memory lie as a CPU's kernels write them while this is entered."""
    # What has a formula there takes its shapes from that.
    formulas: dict[Any, Any] = {
        op: decomposition_table.pop(op)
        for op in (*_FORWARD, _BACKWARD)
        if op in decomposition_table
    }
    FakeTensorMode.cache_clear()
    op_implementations_dict.update(dict.fromkeys(_FORWARD, _forward))
    op_implementations_dict[_BACKWARD] = partial(_backward, formulas[_BACKWARD])
    try:
        yield
    finally:
        for op in (*_FORWARD, _BACKWARD):
            del op_implementations_dict[op]
        decomposition_table.update(formulas)
        FakeTensorMode.cache_clear()


def _forward(mode: FakeTensorMode, op: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    with in_kernel_invocation_manager(mode):
        made, *others = op(x, *args, **kwargs)
    # Half precision beside parameters in full precision keeps its statistics in full precision.
    given = {a.dtype for a in args if isinstance(a, torch.Tensor)}
    mixed = x.dtype.itemsize == 2 and torch.float32 in given
    with mode:
        shapes = [
            torch.empty(t.shape, dtype=torch.float32 if mixed else t.dtype, device=x.device)
            for t in others
        ]
        return (_laid_out(made, x), *shapes)


def _backward(
    formula: Callable[..., Any],
    mode: FakeTensorMode,
    _op: Any,
    gradient: torch.Tensor,
    x: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> Any:
    with mode:
        made, *others = formula(gradient, x, *args, **kwargs)
        return (made if made is None else _laid_out(made, x), *others)


def _laid_out(made: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    wanted = suggest_memory_format(x)
    return torch.empty(made.shape, dtype=made.dtype, device=x.device, memory_format=wanted)
