"""The public functions; `memplan/__init__.py` re-exports them lazily."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn

from memplan.codegen.artifacts import PLAN_FILE
from memplan.codegen.backend import Backend, Lowering, PlannedOnly
from memplan.codegen.known_plans import TheOnePlan
from memplan.codegen.known_shapes import KnownShapes
from memplan.codegen.optimized_module import NO_BACKWARD, OptimizedModule, run_until_planned
from memplan.codegen.swap.settings import SwapSettings
from memplan.errors import CaptureError, PlanMismatch, UsageError
from memplan.graph_capture.device import Device
from memplan.graph_capture.graph import Graph, Kind
from memplan.graph_capture.joint import JointGraph
from memplan.inductor_step import fitted_step
from memplan.planner.minimum import MinimumBudget
from memplan.planner.minimum import minimum_budget as search_minimum
from memplan.planner.pipeline import make_plan
from memplan.planner.plan import Plan
from memplan.planner.problem import Limits, Problem, Watch
from memplan.step_planner import (
    OptimizerLike,
    ProfileKind,
    Progress,
    StepPlanner,
    device_of,
    pricer_for,
)

Loss: TypeAlias = Callable[..., Any]
_T = TypeVar("_T")


def compile(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: str | int,
    loss: Loss | None = None,
    optimizer: OptimizerLike | None = None,
    solver: str = "auto",
    device: str | Device | None = None,
    profile: ProfileKind = "measured",
    time_limit: float = 60.0,
    gap: float = 0.003,
    progress: Progress | None = None,
    watch: Watch | None = None,
    swap: str = "none",
    swap_dir: str | Path | None = None,
    host_memory: str | int | None = None,
    link: str | int | None = None,
    backend: str = "eager",
    new_shapes: str = "plan",
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
        device: The device to plan for, or its name; by default the one the model is on.
        profile: `"measured"` runs every distinct op here, `"analytic"` computes its cost.
        time_limit: Seconds the solver may take.
        gap: A plan proven to be within this share of the fastest will do, so that the solver
            stops before its time is over; 0 to go on until it is the fastest.
        progress: Told what is being done.
        watch: Told of the best schedule so far and its bound while the solver runs.
        swap: Where tensors may be moved to while they are not read: `"none"`, `"disk"`, or
            `"host"`: the machine's memory.
        swap_dir: Where the swap file of `"disk"` is; by default with the temporary files.
        host_memory: What `"host"` may take, such as `"32GB"`; by default half of the memory.
        link: Speed of the moves, such as `"25GB/s"`; measured by default. On a CPU, `"host"`
            keeps to it.
        backend: What runs the planned graphs: `"eager"`, one operation after another, or
            `"inductor"`, in kernels that torch's compiler makes. Then gradients are those of the
            unplanned step under Inductor, the plan is made for what it will fuse, and the step is
            run here to measure its peak; it is planned up to twice more, for less if it is over
            the budget, or for what it leaves of it.
        new_shapes: `"plan"` to plan inputs of other shapes when they come, or `"refuse"` to raise
            `UsageError` for them. Without gradients nothing is planned, and any shape may come.

    Raises:
        CaptureError: The model cannot be captured as one graph.
        SwapError: There is no room for what is moved.
        InfeasibleBudget: No schedule fits; the error names the smallest budget known to.
        MemplanError: Anything else that cannot be done, in one line.
    """
    if new_shapes not in ("plan", "refuse"):
        raise UsageError(f"new_shapes cannot be {new_shapes!r}; choose plan or refuse")
    shapes = KnownShapes() if new_shapes == "refuse" else None
    swapping = SwapSettings.read(swap, swap_dir, host_memory, link)
    planner = StepPlanner(
        pricer=pricer_for(model, optimizer, device, profile, progress),
        budget=budget,
        solver=solver,
        limits=Limits(time_s=time_limit, gap=gap, watch=watch),
        swapping=swapping,
    )
    if backend == "inductor":

        def make(planner: StepPlanner, *, lowering: Lowering) -> OptimizedModule:
            places = None if swap == "none" else swapping.places(device_of(model))
            backend = Backend(planner, places, lowering=lowering)
            return OptimizedModule(model, loss, backend, shapes)

        return fitted_step(make, planner, _as_args(args), kwargs or {})
    if backend != "eager":
        raise UsageError(f"no backend is called {backend!r}; choose eager or inductor")
    target = planner.pricer.device.torch_type
    places = swapping.places(device_of(model))
    module = OptimizedModule(model, loss, Backend(planner, places, target), shapes)
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
    device: str | Device | None = None,
    profile: ProfileKind = "measured",
    time_limit: float = 60.0,
    gap: float = 0.003,
    progress: Progress | None = None,
    watch: Watch | None = None,
    swap: str = "none",
    swap_dir: str | Path | None = None,
    host_memory: str | int | None = None,
    link: str | int | None = None,
) -> Plan:
    """Return the plan that `compile` would follow, without emitting any code.

    Args and errors are those of `compile`.
    """
    swapping = SwapSettings.read(swap, swap_dir, host_memory, link)
    planner = StepPlanner(
        pricer=pricer_for(model, optimizer, device, profile, progress),
        budget=budget,
        solver=solver,
        limits=Limits(time_s=time_limit, gap=gap, watch=watch),
        swapping=swapping,
    )
    target = planner.pricer.device.torch_type
    return _at_joint_graph(model, args, kwargs, loss, planner, target)


def capture(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Loss | None = None,
    optimizer: OptimizerLike | None = None,
    device: str | Device | None = None,
    profile: ProfileKind = "measured",
    progress: Progress | None = None,
) -> Graph:
    """Return the joint forward+backward graph of one training step, with costs.

    Args are those of `compile`.

    Raises:
        CaptureError: The model cannot be captured as one graph.
        ProfileError: An operation can be neither run nor priced.
    """
    pricer = pricer_for(model, optimizer, device, profile, progress)
    return _at_joint_graph(model, args, kwargs, loss, pricer, pricer.device.torch_type)


def solve(
    graph: Graph,
    *,
    budget: str | int,
    solver: str = "auto",
    time_limit: float = 60.0,
    gap: float = 0.003,
    seed: int = 0,
    watch: Watch | None = None,
    **options: Any,
) -> Plan:
    """Plan a graph that is already there: captured earlier, or read from a file.

    Args:
        graph: The graph; it needs no forward and backward phases.
        budget: As for `compile`.
        solver: Name of an installed solver.
        time_limit: Seconds the solver may take.
        gap: As for `compile`.
        seed: Same seed, same plan.
        watch: Told of the best schedule so far and its bound while the solver runs.
        **options: The solver's own options.

    Raises:
        InfeasibleBudget: No schedule fits; the error names the smallest budget known to.
        SolverStopped: The solver found nothing, which proves nothing.
    """
    limits = Limits(time_s=time_limit, seed=seed, gap=gap, watch=watch)
    return make_plan(graph, budget, solver=solver, options=options, limits=limits)


def minimum_budget(
    graph: Graph | Problem, *, time_limit: float = 60.0, seed: int = 0
) -> MinimumBudget:
    """Return the smallest budget a schedule is found for, with a proven lower limit.

    `limit_bytes` of the result holds for every schedule; `schedule` has a peak of exactly
    `feasible_bytes`. Where the two are equal, there is no smaller budget.

    Args:
        graph: The graph; of a problem, its graph, whatever its budget is.
        time_limit: Seconds the search may take; graphs of a few hundred ops take a few.
        seed: Same seed, same answer.
    """
    asked = graph.graph if isinstance(graph, Problem) else graph
    return search_minimum(asked, limits=Limits(time_s=time_limit, seed=seed))


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
    places = SwapSettings.read(folder=swap_dir).places(device_of(model))
    return OptimizedModule(model, loss, Backend(TheOnePlan(saved), places))


def _at_joint_graph(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor,
    kwargs: Mapping[str, Any] | None,
    loss: Loss | None,
    use: Callable[[JointGraph], _T],
    torch_type: str,
) -> _T:
    """Capture the step, return what `use` makes of its graph, and go no further."""
    made: list[_T] = []

    def use_and_stop(joint: JointGraph) -> Plan:
        made.append(use(joint))
        raise PlannedOnly

    module = OptimizedModule(model, loss, Backend(use_and_stop, torch_type=torch_type))
    run_until_planned(module, _as_args(args), kwargs or {})
    if not made:
        raise CaptureError(NO_BACKWARD)
    return made[-1]


def _as_args(args: Sequence[Any] | torch.Tensor) -> tuple[Any, ...]:
    return (args,) if isinstance(args, torch.Tensor) else tuple(args)


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
