"""The operators that appear in generated graphs, as `torch.ops.memplan.*`.

They make a decision of the plan visible in the graph: a tensor that is kept, or moved. Handles
and pending reads are tensors (1,) of int64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx.node import has_side_effect

from memplan.codegen.swap.store import as_tensor, current_store, value_of
from memplan.codegen.swap.transfers import Copy, Read

_library = torch.library.Library("memplan", "DEF")
_library.define("checkpoint(Tensor(a) x) -> Tensor(a)")
_library.impl("checkpoint", torch.ops.aten.alias.default, "CompositeExplicitAutograd")
# A copy comes back in the layout it went out in, which compilers may not change.
_library.define("swap_out(Tensor x, str tier) -> Tensor", tags=(torch.Tag.needs_exact_strides,))
# It changes what the handle stands for, so that nothing that reads it goes before.
_library.define("release(Tensor(a!) handle) -> ()")
_library.define("prefetch(Tensor handle) -> Tensor")
_library.define(
    "wait(Tensor pending, SymInt[] size, SymInt[] stride, *, ScalarType dtype, Device device)"
    " -> Tensor"
)


def _swap_out(x: torch.Tensor, tier: str) -> torch.Tensor:
    return as_tensor(current_store(tier).write(x))


def _release(handle: torch.Tensor) -> None:
    value_of(handle, Copy).release()


def _prefetch(handle: torch.Tensor) -> torch.Tensor:
    copy = value_of(handle, Copy)
    return as_tensor(copy.store.read(copy))


def _wait(
    pending: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    return value_of(pending, Read).finish()


def _fake_handle(x: torch.Tensor, tier: str = "") -> torch.Tensor:
    return torch.empty(1, dtype=torch.int64, device="cpu")


def _fake_wait(
    pending: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


for _name, _run in (
    ("swap_out", _swap_out),
    ("release", _release),
    ("prefetch", _prefetch),
    ("wait", _wait),
):
    _library.impl(_name, _run, "CompositeExplicitAutograd")
torch.library.register_fake("memplan::swap_out", _fake_handle, lib=_library)
torch.library.register_fake("memplan::prefetch", _fake_handle, lib=_library)
torch.library.register_fake("memplan::release", lambda handle: None, lib=_library)
torch.library.register_fake("memplan::wait", _fake_wait, lib=_library)

checkpoint = torch.ops.memplan.checkpoint.default
"""Marks a tensor that is kept from the forward to the backward pass."""
swap_out = has_side_effect(torch.ops.memplan.swap_out.default)
"""Starts to write a tensor to a tier; returns a handle of the copy."""
release = has_side_effect(torch.ops.memplan.release.default)
"""Waits until a copy is written and frees the tensor it was made from."""
prefetch = has_side_effect(torch.ops.memplan.prefetch.default)
"""Takes memory for a copy and starts to read it."""
wait = has_side_effect(torch.ops.memplan.wait.default)
"""Waits until a read has ended; returns the tensor."""
