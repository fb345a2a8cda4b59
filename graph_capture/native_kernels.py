"""Has operators traced with the kernels that plain PyTorch runs for them.

The tracer decomposes some operators by formulas of its own, such as recurrent layers and
interpolation: their results differ in the last bits, and take more memory. Here the C++ kernels
are traced instead. One of them, oneDNN's LSTM layer, hands its backward pass a workspace only
while gradients are on, which they are not inside a compiled step, and of a size that only oneDNN
knows; `memplan::rnn_layer` is that layer with gradients on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch._C import DispatchKey

from memplan.graph_capture.batch_norm_layouts import batch_norm_as_run
from memplan.graph_capture.cuda_kernels import CUDA_ATTENTION, cuda_attention, cuda_dropout
from memplan.graph_capture.plain_execution import plain_execution
from memplan.graph_capture.product_gradients import PRODUCTS
from memplan.graph_capture.shared_casts import CASTS, forget_regions

_aten = torch.ops.aten
_DECOMPOSED = (
    "_upsample_bicubic2d_aa",
    "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "gru",
    "hardshrink",
    "lstm",
    "multi_margin_loss",
    "multilabel_margin_loss_forward",
    "rnn_relu",
    "rnn_tanh",
    "softshrink",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "upsample_trilinear3d",
)
_OPERATORS = tuple(
    getattr(getattr(_aten, name), overload)
    for name in _DECOMPOSED
    for overload in getattr(_aten, name).overloads()
)
_dropout = _aten.dropout.default
_TRACED = PRODUCTS | CASTS
_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)

_library = torch.library.Library("memplan", "FRAGMENT")
_layer = _aten.mkldnn_rnn_layer.default
_library.define(f"rnn_layer{str(_layer._schema).partition('mkldnn_rnn_layer')[2]}")


def _run(*args: Any) -> tuple[torch.Tensor, ...]:
    with torch.enable_grad():
        plain = [a.detach() if isinstance(a, torch.Tensor) else a for a in args]
        return tuple(part.detach() for part in _layer(*plain))


def _shapes(*args: Any) -> tuple[torch.Tensor, ...]:
    output, hidden, cell, workspace = _layer(*args)
    sizes = tuple(a.shape if isinstance(a, torch.Tensor) else _hashable(a) for a in args)
    nbytes = _workspace_bytes(sizes, args[0].dtype)
    return output, hidden, cell, workspace.new_empty(nbytes)


_library.impl("rnn_layer", _run, "CPU")
torch.library.register_fake("memplan::rnn_layer", _shapes, lib=_library)


def _with_workspace(*args: Any) -> Any:
    # Without gradients plain PyTorch runs another kernel, and so does the traced operator.
    return torch.ops.memplan.rnn_layer(*args) if torch.is_grad_enabled() else NotImplemented


KERNELS: dict[Any, Callable[..., Any]] = {_layer: _with_workspace}
"""What stands in a captured graph in place of an operator."""


def with_filled_workspace(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments of oneDNN's backward layer as its forward layer would leave them.

    Args:
        args: Arguments of `aten::mkldnn_rnn_layer_backward` with any values.
    """
    reverse, mode, width, layers, biases, train, both_ways, sizes, batch_first = args[13:22]
    flags = (reverse, sizes, mode, width, layers, biases, both_ways, batch_first, train)
    output, hidden, cell, workspace = _run(*args[:7], *flags)
    return (*args[:7], output, hidden, cell, *args[10:22], workspace)


@contextmanager
def traced_as_run(torch_type: str = "cpu") -> Iterator[None]:
    """Trace operators through their C++ kernels while this is entered.

    Args:
        torch_type: Where the step will run. For `cuda`, tensors without memory that pretend to be
            on the CPU are traced through the kernels that torch takes there.
    """
    stands_in = torch_type == "cuda"
    changed = (*_OPERATORS, *_TRACED, _dropout, *((CUDA_ATTENTION,) if stands_in else ()))
    before = {op: dict(op.py_kernels) for op in changed}
    for op in changed:
        for key in _KEYS:
            op.py_kernels.pop(key, None)
    for key in _KEYS:
        _dropout.py_kernels[key] = cuda_dropout if stands_in else _traced_dropout
        for op, traced in _TRACED.items():
            op.py_kernels[key] = traced
        if stands_in:
            CUDA_ATTENTION.py_kernels[key] = cuda_attention
    _forget_dispatch(changed)
    try:
        with nullcontext() if stands_in else batch_norm_as_run():
            yield
    finally:
        forget_regions()
        for op, kernels in before.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
        _forget_dispatch(changed)


def _forget_dispatch(operators: Iterable[Any]) -> None:
    for op in operators:
        op._dispatch_cache.clear()


def _traced_dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Trace dropout with a mask of one byte an element, where that gives the same bits.

    Plain dropout on a CPU draws a float mask, 0 or 1 / (1 - p), by a division that some p round
    otherwise than the scale that follows a mask of booleans.
    """
    if train and 0 < p < 1 and (x.device.type != "cpu" or _scales_alike(p, x.dtype)):
        dropped: torch.Tensor = _aten.native_dropout(x, p, train)[0]
        return dropped
    plain: torch.Tensor = _dropout._op_dk(DispatchKey.CompositeImplicitAutograd, x, p, train)
    return plain


@cache
def _scales_alike(p: float, dtype: torch.dtype) -> bool:
    # Kernels for half precision compute in float32.
    scale_dtype = torch.float32 if dtype.itemsize < 4 else dtype
    with plain_execution():
        divided = torch.ones((), dtype=dtype).div_(1 - p)
        return divided.item() == torch.tensor(1 / (1 - p), dtype=scale_dtype).item()


@cache
def _workspace_bytes(args: tuple[Any, ...], dtype: torch.dtype) -> int:
    """Return what oneDNN keeps for the backward pass of one layer, by trying it."""
    with plain_execution():
        tried = [
            torch.zeros(a, dtype=dtype) if isinstance(a, torch.Size) else _listed(a) for a in args
        ]
        return _run(*tried)[3].numel()


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
