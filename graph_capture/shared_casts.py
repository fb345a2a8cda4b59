"""Casts that autocast makes once and keeps until its region ends.

Inside a region, autocast casts a parameter at its first use and hands the same cast to later ones,
so that their gradients are summed in the low precision before they are cast back. The tracer
switches that cache off, and what it traces are no leaves, for which alone the cache is. Here the
graph that is traced says where regions are, and a leaf's cast is traced once in each.
Source: `cached_cast` in `autocast_mode.cpp` of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey

_to = torch.ops.aten.to.dtype
_KEPT_OUT = {"cpu": DispatchKey.AutocastCPU, "cuda": DispatchKey.AutocastCUDA}


@dataclass
class _Region:
    """What is traced now: whether casts are shared, of which leaves, and the casts so far."""

    shares: frozenset[str] = frozenset()
    leaves: dict[int, torch.Tensor] = field(default_factory=dict)
    casts: dict[tuple[int, torch.dtype], torch.Tensor] = field(default_factory=dict)


_region = _Region()


def mark_regions(module: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Let a graph of Dynamo's say, while it is traced, where autocast shares casts.

    Args:
        module: Changed in place; graphs without autocast stay as they are.
        example_inputs: One for each placeholder, as autograd knows them outside of the graph.
    """
    nodes = list(module.graph.nodes)
    ambient = {device for device in _KEPT_OUT if torch.is_autocast_enabled(device)}
    regions = [node for node in nodes if node.target in (_ENTER, _EXIT)]
    if not ambient and not regions:
        return
    placeholders = [node for node in nodes if node.op == "placeholder"]
    leaves = [
        node for node, x in zip(placeholders, example_inputs, strict=True) if _is_cached_leaf(x)
    ]
    caches = torch.is_autocast_cache_enabled()
    with module.graph.inserting_after(placeholders[-1] if placeholders else None):
        module.graph.call_function(_begin, (_shares(ambient, caches), *leaves))
    states = [(ambient, caches)]
    for node in regions:
        if node.target is _EXIT:
            states.pop()
        else:
            states.append(_inside(node, *states[-1]))
        ends = len(states) == 1 and not ambient
        with module.graph.inserting_after(node):
            module.graph.call_function(_go_on, (_shares(*states[-1]), ends))
    module.recompile()


def forget_regions() -> None:
    """Let go of what was traced."""
    _region.__init__()  # type: ignore[misc]


def traced_cast(x: torch.Tensor, dtype: torch.dtype, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Trace `aten::to.dtype`, once a region where autocast calls it on a leaf."""
    key = (id(x), dtype)
    shared = key[0] in _region.leaves and _is_autocasts(x, dtype) and torch.is_grad_enabled()
    if shared and key in _region.casts:
        return _region.casts[key]
    made: torch.Tensor = _to._op_dk(
        DispatchKey.CompositeImplicitAutograd, x, dtype, *args, **kwargs
    )
    if shared:
        _region.casts[key] = made
    return made


CASTS: dict[Any, Any] = {_to: traced_cast}
"""What traces an operator, above autograd."""

_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast


def _begin(shares: tuple[str, ...], *leaves: torch.Tensor) -> None:
    _region.shares = frozenset(shares)
    _region.leaves = {id(leaf): leaf for leaf in leaves}
    _region.casts = {}


def _go_on(shares: tuple[str, ...], ends: bool) -> None:
    _region.shares = frozenset(shares)
    if ends:
        _region.casts = {}


def _is_autocasts(x: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether autocast calls, which keeps itself out meanwhile, and not the model."""
    device = x.device.type
    return (
        device in _region.shares
        and dtype == torch.get_autocast_dtype(device)
        and torch._C._dispatch_tls_is_dispatch_key_excluded(_KEPT_OUT[device])
    )


def _is_cached_leaf(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor)
        and x.dtype is torch.float32
        and x.requires_grad
        and x.is_leaf
        and not x._is_view()
    )


def _inside(node: fx.Node, enabled: set[str], caches: bool) -> tuple[set[str], bool]:
    """Return what is enabled, and whether casts are kept, after entering a region."""
    device, _dtype, turned_on, keeps = node.args
    after = enabled | {str(device)} if turned_on else enabled - {str(device)}
    return after, caches if keeps is None else bool(keeps)


def _shares(enabled: set[str], caches: bool) -> tuple[str, ...]:
    return tuple(sorted(enabled)) if caches else ()
