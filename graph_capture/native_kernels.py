"""Has operators traced with the kernels that plain PyTorch runs for them.

The tracer decomposes some operators by formulas of its own, such as recurrent layers and
interpolation: their results differ in the last bits, and take more memory. Here the C++ kernels
are traced instead. One of them, oneDNN's LSTM layer, hands its backward pass a workspace only
while gradients are on, which they are not inside a compiled step, and of a size that only oneDNN
knows; `memplan::rnn_layer` is that layer with gradients on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._C import DispatchKey

from memplan.graph_capture.plain_execution import plain_execution

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
def traced_as_run() -> Iterator[None]:
    """Trace operators through their C++ kernels while this is entered."""
    removed = {
        (op, key): op.py_kernels.pop(key)
        for op in _OPERATORS
        for key in _KEYS
        if key in op.py_kernels
    }
    _forget_dispatch()
    try:
        yield
    finally:
        for (op, key), kernel in removed.items():
            op.py_kernels[key] = kernel
        _forget_dispatch()


def _forget_dispatch() -> None:
    for op in _OPERATORS:
        op._dispatch_cache.clear()


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
