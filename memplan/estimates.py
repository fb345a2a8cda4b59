"""Whether a training step fits a device as it is, and what takes the memory; nothing is solved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from memplan.api import Loss, capture
from memplan.graph_capture.annotate import with_alignment, with_unused_state
from memplan.graph_capture.device import Device
from memplan.graph_capture.devices import find_device
from memplan.graph_capture.graph import Graph, Kind
from memplan.planner.limits import lower_limit
from memplan.planner.pipeline import make_plan
from memplan.step_planner import OptimizerLike, Progress, device_notes

ACCUMULATED = "accumulated_gradients"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The unplanned peak of a training step, taken apart.

    Attributes:
        device: What it was estimated for.
        peak_bytes: Peak of the step's tensors and workspaces, rounded as the allocator does.
        bytes: Bytes at the peak by kind of tensor, largest first; with `rounding` they add up to
            `peak_bytes`.
        modules: Activations and temporaries at the peak by module, largest first.
        overhead_bytes: What the framework takes besides.
        peak_op: Name of the op that runs at the peak.
        peak_module: Path of the module that calls it.
        limit_bytes: Proven: no plan that keeps or recomputes has a smaller peak.
        time_ns: Time of the step by the analytic profile.
        graph: The captured step.
        notes: Remarks for people, one sentence each.
    """

    device: Device
    peak_bytes: int
    bytes: Mapping[str, int]
    modules: Mapping[str, int]
    overhead_bytes: int
    peak_op: str
    peak_module: str
    limit_bytes: int
    time_ns: int
    graph: Graph
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Peak and overhead together: what the device must have."""
        return self.peak_bytes + self.overhead_bytes

    @property
    def fits(self) -> bool:
        """Whether the step runs on the device without a plan."""
        return self.total_bytes <= self.device.memory_bytes

    @property
    def may_fit_planned(self) -> bool:
        """Whether nothing proves that no plan fits the device."""
        return self.limit_bytes + self.overhead_bytes <= self.device.memory_bytes


def estimate(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Loss | None = None,
    optimizer: OptimizerLike | None = None,
    device: str | Device | None = None,
    accumulate: bool = False,
    progress: Progress | None = None,
) -> Estimate:
    """Return what one training step takes on a device, and of what it is made.

    The step is captured and neither run nor solved; a model made under torch's `FakeTensorMode`
    takes no memory either.

    Args:
        model: Any module.
        args: Example positional inputs; with a loss, the loss's inputs come last.
        kwargs: Example keyword inputs of the model.
        loss: As for `compile`.
        optimizer: As for `compile`.
        device: The device, or its name; by default the one the model is on.
        accumulate: Whether gradients of earlier steps are still there, as with gradient
            accumulation: a second set is held while the new one is made.
        progress: Told what is being done.

    Raises:
        CaptureError: The model cannot be captured as one graph.
        UnknownDevice: There is no such device.
    """
    target = find_device(device or "cpu")
    raw = capture(
        model,
        args,
        kwargs,
        loss=loss,
        optimizer=optimizer,
        device=replace(target, alignment_bytes=1),
        profile="analytic",
        progress=progress,
    )
    if accumulate:
        held = sum(t.nbytes for t in raw.tensors if t.kind is Kind.GRADIENT)
        raw = with_unused_state(raw, {ACCUMULATED: (Kind.GRADIENT, held)})
    return estimate_graph(raw, target)


def estimate_graph(raw: Graph, device: Device) -> Estimate:
    """Return the estimate of a captured step whose sizes are not rounded yet."""
    graph = with_alignment(raw, device)
    step = make_plan(graph, "100%")
    at_peak = dict(step.bytes_at_peak)
    # The same schedule with exact sizes: what is more in the rounded one is the allocator's.
    exact = replace(step, graph=raw)
    step_at = step.schedule[step.timeline.peak_step] if step.schedule else None
    if step_at is not None and exact.timeline.peak_step == step.timeline.peak_step:
        unrounded = dict(exact.bytes_at_peak)
        rounding = step.planned_peak_bytes - exact.planned_peak_bytes
        at_peak = unrounded | ({"rounding": rounding} if rounding else {})
    op = graph.ops[getattr(step_at, "op", -1)] if graph.ops else None
    return Estimate(
        device=device,
        peak_bytes=step.planned_peak_bytes,
        bytes=at_peak,
        modules=dict(step.modules_at_peak),
        overhead_bytes=device.overhead_bytes,
        peak_op=op.name if op else "",
        peak_module=op.module if op else "",
        limit_bytes=lower_limit(graph)[0],
        time_ns=graph.time_ns,
        graph=graph,
        notes=device_notes(graph, device),
    )
