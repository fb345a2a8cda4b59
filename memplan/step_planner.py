"""From a captured step to its plan: bytes and costs, then a solver; what every way in shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from memplan.codegen.pickling import require_picklable
from memplan.codegen.swap.settings import SwapSettings
from memplan.errors import UsageError
from memplan.graph_capture.analytic_profiler import AnalyticProfiler
from memplan.graph_capture.annotate import (
    with_alignment,
    with_costs,
    with_optimizer,
    with_provenance,
    with_unused_state,
)
from memplan.graph_capture.device import Device
from memplan.graph_capture.devices import find_device
from memplan.graph_capture.graph import Graph, Kind
from memplan.graph_capture.joint import JointGraph
from memplan.graph_capture.measured_profiler import MeasuredProfiler
from memplan.graph_capture.optimizer_state import MakeOptimizer, optimizer_bytes, optimizer_named
from memplan.graph_capture.profile import Profiler
from memplan.planner.pipeline import make_plan
from memplan.planner.plan import Plan
from memplan.planner.plan_cache import PlanCache, question_of
from memplan.planner.problem import Limits
from memplan.planner.solver import load_solver
from memplan.units import format_bytes, parse_budget

ProfileKind: TypeAlias = Literal["measured", "analytic"]
OptimizerLike: TypeAlias = str | MakeOptimizer | torch.optim.Optimizer

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

_ANY_BYTES = 2**40
_CPU_KERNELS = "_for_cpu"


@dataclass(frozen=True, kw_only=True)
class Pricer:
    """Turns a joint graph into a graph with all bytes and costs of the step."""

    model: nn.Module
    optimizer: OptimizerLike | None
    device: Device
    profiler: Profiler
    profile_kind: ProfileKind
    progress: Progress | None

    def __call__(self, joint: JointGraph) -> Graph:
        """Return the graph of `joint` with costs, unused state and the optimizer's step."""
        graph = with_costs(joint.graph, joint.nodes, self.profiler, self._profiling)
        graph = with_unused_state(graph, _unused_state(graph, self.model))
        if self.optimizer is not None:
            # A parameter that gets no gradient gets no optimizer state either.
            named = dict(self.model.named_parameters(remove_duplicate=False))
            trained = [p for name, p in named.items() if name in joint.trained]
            footprint = optimizer_bytes(self.optimizer, trained, self.device.torch_type)
            graph = with_optimizer(graph, footprint)
        graph = with_provenance(
            graph,
            device=self.device.name,
            model=type(self.model).__name__,
            optimizer=_optimizer_name(self.optimizer),
            profile=self.profile_kind,
        )
        return replace(with_alignment(graph, self.device), name=type(self.model).__name__)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what shows the progress, which belongs to a terminal."""
        device = None if self.device.name == "cpu" else self.device
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            require_picklable("function that makes the optimizer", self.optimizer)
        return pricer_for, (self.model, self.optimizer, device, self.profile_kind, None)

    def _profiling(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress("profiling operations", done, total)


def pricer_for(
    model: nn.Module,
    optimizer: OptimizerLike | None,
    device_name: str | Device | None,
    profile: str,
    progress: Progress | None,
) -> Pricer:
    """Return what prices the steps of `model`.

    Raises:
        UsageError: The device, the optimizer or the profile is not known, or operations cannot be
            measured for that device here.
    """
    here = device_of(model).type
    device = find_device(device_name or "cpu") if here == "cpu" else _accelerator(device_name)
    if isinstance(optimizer, str):
        optimizer = optimizer_named(optimizer, device.torch_type)
    if profile == "measured":
        if device.torch_type != here:
            raise UsageError(
                f"operations of {device.name} cannot be measured on a model that is on {here}; "
                "choose the analytic profile"
            )
        profiler: Profiler = MeasuredProfiler(device=device)
    elif profile == "analytic":
        profiler = AnalyticProfiler(device)
    else:
        raise UsageError(f"no profile is called {profile!r}; choose measured or analytic")
    return Pricer(
        model=model,
        optimizer=optimizer,
        device=device,
        profiler=profiler,
        profile_kind="measured" if profile == "measured" else "analytic",
        progress=progress,
    )


@dataclass(frozen=True, kw_only=True)
class StepPlanner:
    """Makes the plan of a captured step; it can be pickled as far as its optimizer can."""

    pricer: Pricer
    budget: str | int
    solver: str
    limits: Limits
    swapping: SwapSettings = field(default_factory=SwapSettings.read)

    def __post_init__(self) -> None:
        # Refuse what cannot be meant before the capture, which takes a while.
        parse_budget(self.budget, _ANY_BYTES, _ANY_BYTES)
        load_solver(self.solver)
        self.swapping.require_link(self.pricer.device)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without who watches the solver."""
        return {**self.__dict__, "limits": replace(self.limits, watch=None)}

    @property
    def budget_bytes(self) -> int:
        """The budget where it is in bytes, of no matter what step."""
        return parse_budget(self.budget, _ANY_BYTES, _ANY_BYTES)

    def __call__(self, joint: JointGraph) -> Plan:
        """Return the plan of `joint`.

        Raises:
            InfeasibleBudget: No schedule fits.
        """
        graph = self.pricer(joint)
        if self.pricer.progress is not None:
            self.pricer.progress("solving", 0, 0)
        measured = self.pricer.profile_kind == "measured"
        tiers = self.swapping.tiers(graph, self.pricer.device, measured=measured)
        plan = PlanCache().plan(
            graph,
            question_of(self.budget, self.solver, self.limits, tiers),
            lambda: make_plan(
                graph, self.budget, solver=self.solver, limits=self.limits, tiers=tiers
            ),
        )
        return _with_device_notes(plan, self.pricer.device, measured=measured)


def device_notes(graph: Graph, device: Device) -> tuple[str, ...]:
    """Return where the captured step differs from the one that the device would run."""
    if device.torch_type != "cuda":
        return ()
    notes = ["Workspaces of the device's libraries have no formula and count as 0."]
    stand_ins = [op for op in graph.ops if _CPU_KERNELS in op.target]
    if stand_ins:
        saved = sum(graph.tensors[t].nbytes for op in stand_ins for t in op.outputs)
        notes.append(
            f"{len(stand_ins)} ops such as {stand_ins[0].name!r} stand for the device's own fused "
            f"attention, which saves about the same tensors ({format_bytes(saved)} in all)."
        )
    return tuple(notes)


def _with_device_notes(plan: Plan, device: Device, *, measured: bool) -> Plan:
    """Say what was not captured as the device runs it, and whether the plan fits the device."""
    notes = () if measured else device_notes(plan.graph, device)
    if plan.planned_peak_bytes > device.memory_bytes:
        needs, has = format_bytes(plan.planned_peak_bytes), format_bytes(device.memory_bytes)
        notes += (f"The planned step takes {needs}, but {device.name} has {has}.",)
    return replace(plan, notes=(*plan.notes, *notes))


def device_of(model: nn.Module) -> torch.device:
    """Return the device that holds a model; the CPU for one without tensors."""
    tensors = (*model.parameters(), *model.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def _accelerator(name: str | Device | None) -> Device:
    if name is None:
        raise UsageError("name the device the model is on, such as device='a100-40gb'")
    return find_device(name)


def _optimizer_name(optimizer: OptimizerLike | None) -> str:
    if optimizer is None:
        return "none"
    if isinstance(optimizer, torch.optim.Optimizer):
        return type(optimizer).__name__
    build = optimizer.func if isinstance(optimizer, partial) else optimizer
    return getattr(build, "__name__", type(build).__name__)


def _unused_state(graph: Graph, model: nn.Module) -> Mapping[str, tuple[Kind, int]]:
    """Return the model's parameters and buffers whose storage the graph does not read."""
    held = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    given = {t.name for t in graph.tensors if t.kind in (Kind.PARAM, Kind.BUFFER)}
    seen = {t.untyped_storage()._cdata for n, t in held.items() if n in given}
    unused: dict[str, tuple[Kind, int]] = {}
    for name, tensor in held.items():
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            kind = Kind.PARAM if isinstance(tensor, nn.Parameter) else Kind.BUFFER
            unused[name] = (kind, storage.nbytes())
    return MappingProxyType(unused)
