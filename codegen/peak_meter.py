"""Measures the peak memory of a training step: the figure that a plan promises.

The peak of a step is what lives before it (`live_bytes` of the model, the optimizer and the
inputs) plus the rise while it runs (`measure_peak`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from memplan.errors import UsageError
from memplan.graph_capture.allocations import record_allocations


def measure_peak(
    step: Callable[[], object], torch_type: str = "cpu", *, warm_up: bool = True
) -> int:
    """Run `step` and return the most bytes it held above what was held at its start.

    On a CPU the allocator's events are counted; what Python threads that `step` starts allocate
    is not seen. On CUDA it is what tensors asked for, without what the caching allocator rounds up
    or keeps.

    Args:
        step: What is measured.
        torch_type: `cpu` or `cuda`: whose memory.
        warm_up: Run `step` once before, so that nothing is compiled or set up for good while it is
            measured, and so that what one step leaves for the next to give back, such as
            gradients, is known by its size.

    Raises:
        UsageError: `torch_type` is neither `cpu` nor `cuda`.
        ProfileError: A torch profiler is active on this thread already.
    """
    if torch_type not in ("cpu", "cuda"):
        raise UsageError(f"memory of {torch_type!r} cannot be measured; only that of cpu and cuda")
    measure = _cuda_peak if torch_type == "cuda" else _cpu_peak
    if warm_up:
        measure(step)
    return measure(step)


def _cpu_peak(step: Callable[[], object]) -> int:
    return record_allocations(step)[1].peak_bytes


def _cuda_peak(step: Callable[[], object]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before_bytes = int(torch.cuda.memory_stats()["requested_bytes.all.current"])
    step()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_stats()["requested_bytes.all.peak"]) - before_bytes


def live_bytes(*objects: object, torch_type: str | None = None) -> int:
    """Return the bytes of all tensors in `objects`, each storage once.

    Looks into modules (parameters, buffers and their gradients), optimizers (state), mappings,
    lists, tuples, sets and dataclasses.

    Args:
        objects: What holds the tensors.
        torch_type: Count only tensors on this type of device; None for all.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    for tensor in _tensors_in(objects, set()):
        if torch_type is None or tensor.device.type == torch_type:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage
    return sum(storage.nbytes() for storage in storages.values())


def _tensors_in(value: object, seen: set[int]) -> Iterator[torch.Tensor]:
    """Find the tensors in `value`; `seen` holds the ids of containers that were entered."""
    if isinstance(value, torch.Tensor):
        yield value
        if value.is_leaf and value.grad is not None:
            yield value.grad
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for part in _parts(value):
        yield from _tensors_in(part, seen)


def _parts(value: object) -> Iterator[Any]:
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, torch.optim.Optimizer):
        yield from value.state.values()
        yield from value.param_groups
    elif isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name) for field in fields(value))
