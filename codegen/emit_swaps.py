"""The nodes of transfers, and what of them crosses from the forward to the backward graph."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import fx
from torch.fx.node import Argument

from memplan.codegen.operators import swap_out, wait
from memplan.errors import InvalidSchedule
from memplan.graph_capture.fx_nodes import tensor_value
from memplan.graph_capture.joint import JointGraph
from memplan.planner.schedule import Prefetch, Step, SwapOut, Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Tensors, by index, of whose transfers the backward pass needs something.

    Attributes:
        handles: It reads their copy or waits for its write.
        pending: It waits for a read that the forward pass starts.
        writing: Their write is not waited for when it starts.
    """

    handles: tuple[int, ...]
    pending: tuple[int, ...]
    writing: tuple[int, ...]


def crossing(steps: Sequence[Step], boundary: int) -> Crossing:
    """Return what crosses before `steps[boundary]`."""
    copied: set[int] = set()
    writing: dict[int, None] = {}
    reading: dict[int, None] = {}
    for step in steps[:boundary]:
        if isinstance(step, SwapOut):
            copied.add(step.tensor)
            writing[step.tensor] = None
        elif isinstance(step, Prefetch):
            reading[step.tensor] = None
        elif isinstance(step, Wait):
            writing.pop(step.tensor, None)
            reading.pop(step.tensor, None)
    later = (s.tensor for s in steps[boundary:] if isinstance(s, Prefetch))
    handles = dict.fromkeys([*writing, *(t for t in later if t in copied)])
    return Crossing(handles=tuple(handles), pending=tuple(reading), writing=tuple(writing))


def swap_out_node(graph: fx.Graph, held: fx.Node, tier: str) -> fx.Node:
    """Add the start of a write; return the node of its handle."""
    made = graph.call_function(swap_out, (held, tier))
    made._rename(f"{held.name}_swap_out")
    return made


def wait_node(graph: fx.Graph, pending: fx.Node, source: fx.Node) -> fx.Node:
    """Add the end of a read; return the node of the tensor, which is like that of `source`."""
    value = tensor_value(source)
    if value is None:
        raise InvalidSchedule(0, f"{source.name!r} is read back but is no tensor")
    shape, stride = list(value.shape), list(value.stride())
    layout: dict[str, Argument] = {"dtype": value.dtype, "device": value.device}
    made = graph.call_function(wait, (pending, shape, stride), layout)
    made._rename(f"{source.name}_swapped_in")
    made.meta = dict(source.meta)
    return made


def fake_handle(joint: JointGraph) -> torch.Tensor:
    """Return a fake tensor like a handle, in the fake mode of the graph."""
    with fake_mode_of(joint):
        return torch.empty(1, dtype=torch.int64, device="cpu")


def fake_mode_of(joint: JointGraph) -> AbstractContextManager[object]:
    """Return the fake mode that the graph was traced in, or one that does nothing."""
    mode = torch._guards.detect_fake_mode(
        [n.meta.get("val") for n in joint.module.graph.find_nodes(op="placeholder")]
    )
    return nullcontext() if mode is None else mode
