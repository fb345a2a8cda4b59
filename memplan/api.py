"""The public functions; `memplan/__init__.py` re-exports them lazily."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch import nn

from memplan.codegen.artifacts import PLAN_FILE
from memplan.codegen.backend import Backend, PlannedOnly
from memplan.codegen.optimized_module import NO_BACKWARD, OptimizedModule, run_until_planned
from memplan.codegen.swap.settings import SwapSettings
from memplan.errors import CaptureError, PlanMismatch, UsageError
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
from memplan.planner.problem import Limits
from memplan.planner.solver import load_solver
from memplan.units import format_bytes, parse_budget

ProfileKind: TypeAlias = Literal["measured", "analytic"]
OptimizerLike: TypeAlias = str | MakeOptimizer | torch.optim.Optimizer
Loss: TypeAlias = Callable[..., Any]
_ANY_BYTES = 2**40
_T = TypeVar("_T")

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def compile(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: str | int,
    loss: Loss | None = None,
    optimizer: OptimizerLike | None = None,
    solver: str = "auto",
    device: str | None = None,
    profile: ProfileKind = "measured",
    time_limit: float = 60.0,
    progress: Progress | None = None,
    swap: str = "none",
    swap_dir: str | Path | None = None,
    host_memory: str | int | None = None,
    link: str | int | None = None,
) -> OptimizedModule:
    """Return `model` as a module whose training step stays within a memory budget.

    The step is captured and planned here, before anything runs; inputs of other shapes are
    planned when they first come. Gradients are bit-identical to those of the unplanned step.

    Args:
        model: Any module. It is shared, not copied: parameters, buffers and mode stay its own.
        args: Example positional inputs; with a loss, the loss's inputs come last.
        kwargs: Example keyword inputs of the model.
        budget: Peak device memory of one training step: bytes, `"8GB"`, `"7.5GiB"`, `"50%"` of
            the unplanned peak, or `"min"`.
        loss: `loss(output, *targets)`. With it, calling the result returns the loss, and the
            loss's memory is planned too.
        optimizer: A name such as `"adamw"`, a function from parameters to an optimizer, or an
            optimizer: its state counts towards the budget.
        solver: Name of an installed solver.
        device: Name of the device to plan for; by default the one the model is on.
        profile: `"measured"` runs every distinct op here, `"analytic"` computes its cost.
        time_limit: Seconds the solver may take.
        progress: Told what is being done.
        swap: Where tensors may be moved to while they are not read: `"none"`, `"disk"`, or
            `"host"`: the machine's memory.
        swap_dir: Where the swap file of `"disk"` is; by default with the temporary files.
        host_memory: What `"host"` may take, such as `"32GB"`; by default half of the memory.
        link: Speed of the moves, such as `"25GB/s"`; measured by default. On a CPU, `"host"`
            keeps to it.

    Raises:
        CaptureError: The model cannot be captured as one graph.
        SwapError: There is no room for what is moved.
        InfeasibleBudget: No schedule fits; the error names the smallest budget known to.
        MemplanError: Anything else that cannot be done, in one line.
    """
    swapping = SwapSettings.read(swap, swap_dir, host_memory, link)
    planner = _planner(
        model, budget, loss, optimizer, solver, device, profile, time_limit, progress, swapping
    )
    module = OptimizedModule(model, loss, Backend(planner, swapping.places()))
    module.plan_for(*_as_args(args), **(kwargs or {}))
    return module


def plan(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: str | int,
    loss: Loss | None = None,
    optimizer: OptimizerLike | None = None,
    solver: str = "auto",
    device: str | None = None,
    profile: ProfileKind = "measured",
    time_limit: float = 60.0,
    progress: Progress | None = None,
    swap: str = "none",
    swap_dir: str | Path | None = None,
    host_memory: str | int | None = None,
    link: str | int | None = None,
) -> Plan:
    """Return the plan that `compile` would follow, without emitting any code.

    Args and errors are those of `compile`.
    """
    swapping = SwapSettings.read(swap, swap_dir, host_memory, link)
    planner = _planner(
        model, budget, loss, optimizer, solver, device, profile, time_limit, progress, swapping
    )
    return _at_joint_graph(model, args, kwargs, loss, planner)


def capture(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Loss | None = None,
    optimizer: OptimizerLike | None = None,
    device: str | None = None,
    profile: ProfileKind = "measured",
    progress: Progress | None = None,
) -> Graph:
    """Return the joint forward+backward graph of one training step, with costs.

    Args are those of `compile`.

    Raises:
        CaptureError: The model cannot be captured as one graph.
        ProfileError: An operation can be neither run nor priced.
    """
    pricer = _pricer(model, optimizer, device, profile, progress)
    return _at_joint_graph(model, args, kwargs, loss, pricer)


def solve(
    graph: Graph,
    *,
    budget: str | int,
    solver: str = "auto",
    time_limit: float = 60.0,
    seed: int = 0,
    **options: Any,
) -> Plan:
    """Plan a graph that is already there: captured earlier, or read from a file.

    Args:
        graph: The graph; it needs no forward and backward phases.
        budget: As for `compile`.
        solver: Name of an installed solver.
        time_limit: Seconds the solver may take.
        seed: Same seed, same plan.
        **options: The solver's own options.

    Raises:
        InfeasibleBudget: No schedule fits; the error names the smallest budget known to.
        SolverStopped: The solver found nothing, which proves nothing.
    """
    limits = Limits(time_s=time_limit, seed=seed)
    return make_plan(graph, budget, solver=solver, options=options, limits=limits)


def load(
    folder: str | Path,
    model: nn.Module,
    *,
    loss: Loss | None = None,
    swap_dir: str | Path | None = None,
) -> OptimizedModule:
    """Return `model` run by the plan in `folder`, without solving anything.

    Args:
        folder: What `OptimizedModule.save` or `memplan compile -o` wrote.
        model: A model of the same structure as the one the plan was made for.
        loss: The loss the plan was made with, if there was one.
        swap_dir: Where the swap file is, if the plan has one.

    Raises:
        PlanMismatch: The plan is damaged or was made for another model. Other input shapes are
            found out at the first call.
        UsageError: There is no plan in the folder.
    """
    saved = Plan.load(Path(folder) / PLAN_FILE)
    _check_parameters(saved.graph, model)
    places = SwapSettings.read(folder=swap_dir).places()
    return OptimizedModule(model, loss, Backend(lambda joint: saved, places))


@dataclass(frozen=True, kw_only=True)
class _Pricer:
    """Turns a joint graph into a graph with all bytes and costs of the step."""

    model: nn.Module
    optimizer: OptimizerLike | None
    device: Device
    profiler: Profiler
    profile_kind: ProfileKind
    progress: Progress | None

    def __call__(self, joint: JointGraph) -> Graph:
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

    def _profiling(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress("profiling operations", done, total)


def _pricer(
    model: nn.Module,
    optimizer: OptimizerLike | None,
    device_name: str | None,
    profile: str,
    progress: Progress | None,
) -> _Pricer:
    here = _torch_type(model)
    if isinstance(optimizer, str):
        optimizer = optimizer_named(optimizer, here)
    device = find_device(device_name or "cpu") if here == "cpu" else _accelerator(device_name)
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
    return _Pricer(
        model=model,
        optimizer=optimizer,
        device=device,
        profiler=profiler,
        profile_kind="measured" if profile == "measured" else "analytic",
        progress=progress,
    )


def _planner(
    model: nn.Module,
    budget: str | int,
    loss: Loss | None,
    optimizer: OptimizerLike | None,
    solver: str,
    device: str | None,
    profile: str,
    time_limit: float,
    progress: Progress | None,
    swapping: SwapSettings,
) -> Callable[[JointGraph], Plan]:
    # Refuse what cannot be meant before the capture, which takes a while.
    parse_budget(budget, _ANY_BYTES, _ANY_BYTES)
    load_solver(solver)
    pricer = _pricer(model, optimizer, device, profile, progress)
    limits = Limits(time_s=time_limit)

    def plan_step(joint: JointGraph) -> Plan:
        graph = pricer(joint)
        if progress is not None:
            progress("solving", 0, 0)
        tiers = swapping.tiers(graph, pricer.device, measured=profile == "measured")
        plan = make_plan(graph, budget, solver=solver, limits=limits, tiers=tiers)
        return _with_device_note(plan, pricer.device)

    return plan_step


def _with_device_note(plan: Plan, device: Device) -> Plan:
    """Say so where the plan fits the budget but not the device."""
    if plan.planned_peak_bytes <= device.memory_bytes:
        return plan
    needs, has = format_bytes(plan.planned_peak_bytes), format_bytes(device.memory_bytes)
    note = f"The planned step takes {needs}, but {device.name} has {has}."
    return replace(plan, notes=(*plan.notes, note))


def _at_joint_graph(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor,
    kwargs: Mapping[str, Any] | None,
    loss: Loss | None,
    use: Callable[[JointGraph], _T],
) -> _T:
    """Capture the step, return what `use` makes of its graph, and go no further."""
    made: list[_T] = []

    def use_and_stop(joint: JointGraph) -> Plan:
        made.append(use(joint))
        raise PlannedOnly

    module = OptimizedModule(model, loss, Backend(use_and_stop))
    run_until_planned(module, _as_args(args), kwargs or {})
    if not made:
        raise CaptureError(NO_BACKWARD)
    return made[-1]


def _as_args(args: Sequence[Any] | torch.Tensor) -> tuple[Any, ...]:
    return (args,) if isinstance(args, torch.Tensor) else tuple(args)


def _torch_type(model: nn.Module) -> str:
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device.type if tensors else "cpu"


def _accelerator(name: str | None) -> Device:
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


def _check_parameters(graph: Graph, model: nn.Module) -> None:
    """Refuse a model whose parameters are not those of the plan."""
    held = dict(model.named_parameters(remove_duplicate=False))
    for tensor in graph.tensors:
        if tensor.kind is not Kind.PARAM:
            continue
        found = held.get(tensor.name)
        if found is None:
            raise PlanMismatch(
                f"the plan was made for another model: it has a parameter {tensor.name!r} "
                f"({graph.name}), this {type(model).__name__} has not"
            )
        nbytes = found.untyped_storage().nbytes()
        if nbytes != tensor.nbytes:
            raise PlanMismatch(
                f"the plan was made for another model: its parameter {tensor.name!r} has "
                f"{tensor.nbytes:,} bytes, this one's has {nbytes:,}"
            )
