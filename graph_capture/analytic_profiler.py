"""Prices operations from their shapes alone, for a device that need not be there.

Source: the roofline model (Williams, Waterman, Patterson, 2009): an operation takes as long as its
    arithmetic at the attainable rate, or its memory traffic at the attainable bandwidth, whichever
    is longer, and never less than a launch.
Deviations: attainable is the peak times one factor for each class of operation; a calibrated
    device brings measured factors, others get those below.
    Traffic is every input read once and every output written once; a lookup reads the rows that
    it returns. Workspaces are taken as 0: what a library takes for itself has no formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import flop_counter

from memplan.errors import ProfileError
from memplan.graph_capture.device import Device
from memplan.graph_capture.op_call import OpCall, TensorSpec
from memplan.graph_capture.plain_execution import plain_execution
from memplan.graph_capture.profile import OpCost, Progress

_EFFICIENCY = {
    "matmul": 0.6,
    "convolution": 0.5,
    "attention": 0.4,
    "pointwise": 0.5,
    "bandwidth": 0.75,
}

# What follows for CPUs was fitted to the processor time of torch 2.13's kernels on one core of a
# server with AVX-512, by `python -m benchmarks.profiler_accuracy --cpu-time`.
_CPU_EFFICIENCY = {"convolution": 0.6, "bandwidth": 1.0}
# A CPU draws its random numbers on one core, one after the other.
_CPU_DRAW_NS = 10
# So does it compare what is in a pooling window.
_CPU_POOL_NS = 4
# What fits into the last cache and was just written is read from there.
_CPU_CACHE_BYTES = 8 * 2**20
_CPU_CACHE_GAIN = 4
# Larger blocks come from the kernel, and every page of them is cleared at its first touch.
_CPU_FRESH_BYTES = 32 * 2**20
_CPU_FRESH_NS_PER_BYTE = 0.5
# Convolutions work on blocks of this many input channels; with fewer, part of a block is idle.
_CPU_CHANNELS = 16

# Arithmetic of one element where it is more than a handful of additions, by the words of the
# operation's name (`_log_softmax_backward_data` has four).
_FLOPS_PER_ELEMENT = {
    **dict.fromkeys(("softmax", "gelu", "silu", "mish", "erf", "tanh", "sigmoid", "softplus"), 40),
    **dict.fromkeys(("exp", "log", "sin", "cos", "pow", "sqrt", "rsqrt", "elu"), 30),
    **dict.fromkeys(("bernoulli", "dropout", "uniform", "rand", "randn", "normal"), 40),
    "norm": 12,
}
_FEW_FLOPS = 2

# Losses that torch's CPU kernels reduce to a scalar which stays in the buffer of all elements.
_RETURN_THEIR_BUFFER = ("binary_cross_entropy", "mse_loss", "smooth_l1_loss", "soft_margin_loss")

_LOOKUPS = (
    "embedding",
    "gather",
    "index",
    "index_select",
    "_unsafe_index",
    "take",
    "nll_loss_forward",
)
# They fill what they return and read next to nothing.
_FILLS = ("nll_loss_backward", "nll_loss2d_backward")


@dataclass(frozen=True, slots=True)
class AnalyticProfiler:
    """A roofline of one device."""

    device: Device

    def profile(self, calls: Sequence[OpCall], progress: Progress | None = None) -> list[OpCost]:
        """Return the modelled cost of each call; `workspace_bytes` is always 0.

        Raises:
            ProfileError: An operation's flop formula does not accept its arguments.
        """
        costs: dict[str, OpCost] = {}
        distinct = {call.key: call for call in calls}
        with plain_execution():
            for done, (key, call) in enumerate(distinct.items(), 1):
                costs[key] = OpCost(
                    self._time_ns(call.inner), retained_bytes=self._retained_bytes(call.inner)
                )
                if progress:
                    progress(done, len(distinct))
        return [costs[call.key] for call in calls]

    def _time_ns(self, call: OpCall) -> int:
        on_cpu = self.device.torch_type == "cpu"
        own = _CPU_EFFICIENCY if on_cpu else {}
        shares = _EFFICIENCY | own | dict(self.device.efficiency)
        flops, kind = _arithmetic(call)
        arithmetic_s = flops / (self._flops_per_s(call) * shares[kind])
        traffic_s = traffic_bytes(call) / (self.device.bandwidth_bytes_per_s * shares["bandwidth"])
        if on_cpu:
            work_ns = _cpu_work_ns(call, arithmetic_s * 1e9, traffic_s * 1e9)
        else:
            work_ns = max(arithmetic_s, traffic_s) * 1e9
        return max(round(work_ns), self.device.launch_ns)

    def _retained_bytes(self, call: OpCall) -> int:
        if self.device.torch_type != "cpu" or _packet_name(call) not in _RETURN_THEIR_BUFFER:
            return 0
        is_reduced = all(spec.shape == () for spec in call.outputs)
        sizes = [math.prod(s.shape) * s.dtype.itemsize for s in (*call.inputs[:1], *call.outputs)]
        return sizes[0] - sizes[-1] if is_reduced else 0

    def _flops_per_s(self, call: OpCall) -> int:
        rates = dict(self.device.flops_per_s)
        floats = [spec.dtype for spec in call.inputs if spec.dtype.is_floating_point]
        name = str(floats[0]).removeprefix("torch.") if floats else "float32"
        return rates.get(name, rates["float32"])


def traffic_bytes(call: OpCall) -> int:
    """Return the bytes that a call must read and write at the least."""
    if _is_view(call):
        return 0
    written = sum(spec.touched_bytes for spec in call.outputs)
    if _packet_name(call) in _LOOKUPS:
        indices = sum(s.touched_bytes for s in call.inputs if not s.dtype.is_floating_point)
        return 2 * written + indices
    if _packet_name(call) in _FILLS:
        return written
    read = sum(spec.touched_bytes for spec in call.inputs)
    # What an in-place operation writes is among its inputs.
    return read if _is_in_place(call) else read + written


def flops_of(call: OpCall) -> int | None:
    """Return the multiplications and additions of a matrix product, convolution or attention.

    None for every other operation: its arithmetic hardly matters.

    Raises:
        ProfileError: The formula does not accept the call's arguments.
    """
    formula = _formula(call)
    if formula is None:
        return None
    args = tuple(_on_meta(value) for value in call.args)
    kwargs = {name: _on_meta(value) for name, value in call.kwargs}
    outputs = [_on_meta(spec) for spec in call.outputs]
    out_val = outputs[0] if len(outputs) == 1 else tuple(outputs)
    try:
        return int(formula(*args, **kwargs, out_val=out_val))
    except (TypeError, ValueError, IndexError, AssertionError) as error:
        raise ProfileError(f"cannot count the operations of {call.key}: {error!r}") from error


def _arithmetic(call: OpCall) -> tuple[int, str]:
    """Return the call's floating-point operations and the class whose efficiency it has."""
    flops = flops_of(call)
    name = _packet_name(call)
    if flops is not None:
        if "conv" in name:
            return flops, "convolution"
        return flops, "attention" if "attention" in name else "matmul"
    if _is_view(call):
        return 0, "pointwise"
    sizes = [math.prod(spec.shape) for spec in (*call.inputs, *call.outputs)]
    each = max(_FLOPS_PER_ELEMENT.get(word, _FEW_FLOPS) for word in name.split("_"))
    return max(sizes, default=0) * each, "pointwise"


def _cpu_work_ns(call: OpCall, arithmetic_ns: float, traffic_ns: float) -> float:
    """Return the time on a CPU, given what its arithmetic and its memory alone would take."""
    nbytes = traffic_bytes(call)
    if nbytes <= _CPU_CACHE_BYTES:
        traffic_ns /= _CPU_CACHE_GAIN
    written = [spec.touched_bytes for spec in call.outputs]
    fresh_bytes = 0 if _is_view(call) else sum(n for n in written if n > _CPU_FRESH_BYTES)
    name = _packet_name(call)
    if "conv" in name:
        channels = min(
            (s.shape[1] for s in call.inputs if len(s.shape) > 2), default=_CPU_CHANNELS
        )
        arithmetic_ns *= max(1.0, _CPU_CHANNELS / max(1, channels)) if flops_of(call) else 1.0
    draws_ns = max(_CPU_DRAW_NS * _draws(call), _CPU_POOL_NS * _window_elements(call))
    work_ns = max(arithmetic_ns, traffic_ns, draws_ns)
    return work_ns + _CPU_FRESH_NS_PER_BYTE * fresh_bytes


def _window_elements(call: OpCall) -> int:
    """Return how many elements all windows of a maximum pooling hold; 0 for other calls."""
    if not _packet_name(call).startswith("max_pool") or "backward" in _packet_name(call):
        return 0
    window = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],) * 2
    return math.prod(call.outputs[0].shape) * math.prod(window) if call.outputs else 0


def _draws(call: OpCall) -> int:
    """Return how many random numbers a call draws."""
    target = call.target
    if not isinstance(target, torch._ops.OpOverload):
        return 0
    if torch.Tag.nondeterministic_seeded not in target.tags or "attention" in _packet_name(call):
        return 0
    return max((math.prod(spec.shape) for spec in call.outputs), default=0)


def _is_view(call: OpCall) -> bool:
    target = call.target
    return isinstance(target, torch._ops.OpOverload) and (
        target.is_view or target is torch.ops.aten._unsafe_view.default
    )


def _is_in_place(call: OpCall) -> bool:
    return isinstance(call.target, torch._ops.OpOverload) and call.target._schema.is_mutable


def _packet_name(call: OpCall) -> str:
    if isinstance(call.target, torch._ops.OpOverload):
        return call.target._schema.name.split("::")[-1]
    return call.name


def _formula(call: OpCall) -> Callable[..., Any] | None:
    target = call.target
    packet = target.overloadpacket if isinstance(target, torch._ops.OpOverload) else target
    own = _FORMULAS.get(_packet_name(call))
    return own or flop_counter.flop_registry.get(packet)


def _on_meta(value: Any) -> Any:
    """Turn specs into tensors without memory: the formulas of torch read shapes from tensors."""
    if isinstance(value, TensorSpec):
        return torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device="meta")
    if isinstance(value, tuple):
        return [_on_meta(item) for item in value]
    return value


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(flop_counter.sdpa_flop_count(query.shape, key.shape, value.shape))


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    shapes = (grad.shape, query.shape, key.shape, value.shape)
    return int(flop_counter.sdpa_backward_flop_count(*shapes))


def _convolution_backward(
    grad: Any, x: Any, weight: Any, _bias: Any, *settings: Any, **__: Any
) -> int:
    """Count one convolution for each of the two large gradients asked for.

    torch's own formula fails where one of them is None.
    """
    transposed, wanted = settings[3], settings[6]
    each = flop_counter.conv_flop_count(x.shape, weight.shape, grad.shape, transposed)
    return each * (bool(wanted[0]) + bool(wanted[1]))


def _grouped_product(left: Any, right: Any, *_: Any, **__: Any) -> int:
    """Count the products of all groups, which share the rows, the columns or the sums."""
    each = 2 * left.shape[-2] * left.shape[-1] * right.shape[-1]
    return int(each * (left.shape[0] if left.dim() == right.dim() == 3 else 1))


def _vector_product(*args: Any, **_: Any) -> int:
    """Count 2 operations for each element of the largest argument."""
    return 2 * max(a.numel() for a in args if isinstance(a, torch.Tensor))


# What torch's registry lacks or gets wrong.
_FORMULAS: dict[str, Callable[..., int]] = {
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
    "_grouped_mm": _grouped_product,
    "mv": _vector_product,
    "addmv": _vector_product,
    "dot": _vector_product,
    "vdot": _vector_product,
}
