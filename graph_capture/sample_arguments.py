"""Real arguments for an operation: right shapes, strides and dtypes, and values that it accepts.

Values hardly change how long a kernel takes, with two exceptions that are kept out: indices must
be in range, and denormal numbers slow a CPU down many times over. Floats are between 0.1 and 0.9,
so that logarithms, roots and probabilities are defined; indices are spread over their range, as
all lookups of one row would find it in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from memplan.errors import ProfileError
from memplan.graph_capture.native_kernels import with_filled_workspace
from memplan.graph_capture.op_call import OpCall, TensorSpec

_BLOCK_ELEMENTS = 1 << 20
_LOWEST, _HIGHEST = 0.1, 0.9


# These read a buffer that another kernel fills in a layout of its own, and crash on any other.
_OPAQUE = frozenset(("_cudnn_rnn_backward", "miopen_rnn_backward"))


def sample_arguments(call: OpCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments with which `call.target` can be run.

    The same call gets the same values each time; the global random generators stay as they are.

    Raises:
        ProfileError: No values that could be made up are safe to run it with.
    """
    if _packet_name(call.inner) in _OPAQUE:
        raise ProfileError(f"{call.name} reads a buffer that only its forward operation can fill")
    args, kwargs = _Sampler(call).arguments()
    if _packet_name(call) == "mkldnn_rnn_layer_backward":
        args = with_filled_workspace(args)
    return args, kwargs


_Args = tuple[Any, ...]


class _Sampler:
    """Makes the arguments of one call; the memory they take is that of the arguments alone."""

    def __init__(self, call: OpCall) -> None:
        self._call = call
        self._generator = torch.Generator().manual_seed(0)
        self._bounds = _index_bounds(call.inner)
        self._integer = 1 if _is_arithmetic(call.inner) else 0

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        skipped = len(self._call.args) - len(self._call.inner.args)
        args = [
            self._value(value, self._bounds.get(i - skipped))
            for i, value in enumerate(_with_real_statistics(self._call))
        ]
        if self._call.name == "run_with_rng_state":
            args[0] = torch.get_rng_state()
        kwargs = {name: self._value(value, None) for name, value in self._call.kwargs}
        return tuple(args), kwargs

    def _value(self, value: Any, bound: _Bound) -> Any:
        if isinstance(value, TensorSpec):
            return self._tensor(value, bound if isinstance(bound, int) else None)
        if isinstance(value, tuple):
            bounds = bound if isinstance(bound, tuple) else (None,) * len(value)
            return [self._value(item, limit) for item, limit in zip(value, bounds, strict=True)]
        if isinstance(value, Mapping):
            return {name: self._value(item, None) for name, item in value.items()}
        return value

    def _tensor(self, spec: TensorSpec, bound: int | None) -> torch.Tensor:
        flat = torch.empty(spec.extent, dtype=spec.dtype, device=spec.device_type)
        self._fill(flat, bound)
        return flat.as_strided(spec.shape, spec.stride)

    def _fill(self, flat: torch.Tensor, bound: int | None) -> None:
        if flat.is_complex():
            self._fill(torch.view_as_real(flat).view(-1), bound)
        elif flat.is_floating_point():
            _tile(flat, self._block(len(flat)).mul_(_HIGHEST - _LOWEST).add_(_LOWEST))
        elif flat.dtype is torch.bool:
            # A lone bool is most often an assertion's condition.
            flat.fill_(True) if len(flat) == 1 else _tile(flat, self._block(len(flat)) < 0.5)
        elif bound is not None:
            _tile(flat, (self._block(len(flat)) * bound).long().clamp_(0, max(bound - 1, 0)))
        else:
            flat.fill_(self._integer)

    def _block(self, count: int) -> torch.Tensor:
        """Return up to a million draws from [0, 1): more are repeated, as drawing is slow."""
        drawn = torch.empty(min(count, _BLOCK_ELEMENTS), device="cpu", dtype=torch.float32)
        return drawn.uniform_(generator=self._generator)


def _tile(flat: torch.Tensor, block: torch.Tensor) -> None:
    """Write `block` over and over into the one-dimensional `flat`."""
    for start in range(0, len(flat), _BLOCK_ELEMENTS):
        part = flat[start : start + _BLOCK_ELEMENTS]
        part.copy_(block[: len(part)])


# Of the gradients of norms: where the mean, the inverse deviation and the weight are.
_STATISTICS = {"native_layer_norm_backward": (3, 4, 5), "native_group_norm_backward": (2, 3, 4)}


def _with_real_statistics(call: OpCall) -> _Args:
    """Return the arguments, with the statistics of a norm in the dtype that kernels write.

    With half-precision inputs and a float32 weight, as under autocast on a CPU, kernels return
    statistics in float32 and take no others, while torch's fake kernels say half precision.
    """
    if _packet_name(call) not in _STATISTICS:
        return call.args
    mean, deviation, weight = _STATISTICS[_packet_name(call)]
    if call.args[weight] is None or call.args[weight].dtype == call.args[0].dtype:
        return call.args
    args = list(call.args)
    for i in (mean, deviation):
        args[i] = replace(args[i], dtype=call.args[weight].dtype)
    return tuple(args)


def _is_arithmetic(call: OpCall) -> bool:
    """Whether integers are numbers to the call: 1 can be divided by, 0 is a valid index."""
    return isinstance(call.target, torch._ops.OpOverload) and (
        torch.Tag.pointwise in call.target.tags or "div" in call.name
    )


_Bound = int | tuple[int | None, ...] | None
"""Indices in one argument are below this; a tuple holds one for each tensor of a list."""


def _index_bounds(call: OpCall) -> dict[int, _Bound]:
    """Return the bound of each argument that holds indices, by its position."""
    find = _INDEX_BOUNDS.get(_packet_name(call))
    return dict(find(call.args)) if find else {}


def _packet_name(call: OpCall) -> str:
    """Return `index_put` for `aten.index_put_.default`; empty for what is not of aten."""
    if isinstance(call.target, torch._ops.OpOverload) and call.target.namespace == "aten":
        return call.target._opname.rstrip("_")
    return ""


_Bounds = Iterator[tuple[int, _Bound]]


def _embedding(args: _Args) -> _Bounds:
    yield 1, args[0].shape[0]


def _embedding_backward(args: _Args) -> _Bounds:
    yield 1, args[2]


def _along_dim(args: _Args) -> _Bounds:
    shape, dim = args[0].shape, args[1]
    yield 2, shape[dim] if shape else 1


def _advanced(args: _Args) -> _Bounds:
    yield 1, tuple(args[0].shape[i] for i in range(len(args[1])))


def _masked_advanced(args: _Args) -> _Bounds:
    yield 2, tuple(args[0].shape[i] for i in range(len(args[2])))


def _take(args: _Args) -> _Bounds:
    yield 1, math.prod(args[0].shape)


def _classes(args: _Args) -> _Bounds:
    shape = args[0].shape
    yield 1, shape[1] if len(shape) > 1 else shape[0]


def _classes_backward(args: _Args) -> _Bounds:
    shape = args[1].shape
    yield 2, shape[1] if len(shape) > 1 else shape[0]


def _pooled(position: int, dims: int) -> Callable[[_Args], _Bounds]:
    """Indices at `position` point into the last `dims` dimensions of argument 1."""

    def bounds(args: _Args) -> _Bounds:
        yield position, math.prod(args[1].shape[-dims:])

    return bounds


_INDEX_BOUNDS: dict[str, Callable[[_Args], _Bounds]] = {
    "embedding": _embedding,
    "_embedding_bag": _embedding,
    "_embedding_bag_forward_only": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _along_dim,
    "index_select": _along_dim,
    "index_add": _along_dim,
    "index_copy": _along_dim,
    "index_fill": _along_dim,
    "index_reduce": _along_dim,
    "scatter": _along_dim,
    "scatter_add": _along_dim,
    "scatter_reduce": _along_dim,
    "index": _advanced,
    "index_put": _advanced,
    "_index_put_impl": _advanced,
    "_unsafe_index": _advanced,
    "_unsafe_index_put": _advanced,
    "_unsafe_masked_index": _masked_advanced,
    "_unsafe_masked_index_put_accumulate": _masked_advanced,
    "take": _take,
    "put": _take,
    "nll_loss_forward": _classes,
    "nll_loss2d_forward": _classes,
    "nll_loss_backward": _classes_backward,
    "nll_loss2d_backward": _classes_backward,
    "max_pool2d_with_indices_backward": _pooled(7, 2),
    "max_pool3d_with_indices_backward": _pooled(7, 3),
    "adaptive_max_pool2d_backward": _pooled(2, 2),
    "adaptive_max_pool3d_backward": _pooled(2, 3),
    "fractional_max_pool2d_backward": _pooled(4, 2),
}
