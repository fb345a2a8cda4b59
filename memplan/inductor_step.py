"""A step that Inductor runs: planned, measured, and planned once more where it is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memplan.codegen.backend import Backend
from memplan.codegen.measured_step import measured_peak_bytes
from memplan.codegen.optimized_module import OptimizedModule
from memplan.errors import MemplanError
from memplan.step_planner import StepPlanner
from memplan.units import format_bytes


def fitted_step(
    make: Callable[[Backend], OptimizedModule],
    planner: StepPlanner,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> OptimizedModule:
    """Return the step by a plan under which its measured peak is within the budget.

    Args:
        make: Makes the module that a backend runs.
        planner: Plans for the budget. Where the step by its plan is over, one for as much less
            makes the plan that counts, also for the shapes that come later.
        args: Example inputs, by position.
        kwargs: Example inputs, by name.

    Raises:
        MemplanError: The step is over its budget by both plans.
    """
    module, measured_bytes = _measured(make, planner, args, kwargs)
    budget_bytes = module.plan.budget_bytes
    over_bytes = measured_bytes - budget_bytes
    if over_bytes > 0 and planner.budget != "min":
        less = replace(planner, budget=budget_bytes - over_bytes)
        module, measured_bytes = _measured(make, less, args, kwargs)
        if measured_bytes > budget_bytes:
            raise MemplanError(
                f"under Inductor the step takes {measured_bytes:,} bytes, {budget_bytes:,} were "
                f"asked for; ask for {measured_bytes:,} or leave backend='inductor' out"
            )
    step = module.steps[-1]
    note = (
        f"Under Inductor the step was measured at {format_bytes(measured_bytes)}, planned at "
        f"{format_bytes(step.plan.planned_peak_bytes)} for a budget of "
        f"{format_bytes(budget_bytes)}."
    )
    noted = replace(step.plan, notes=(*step.plan.notes, note))
    module._backend.steps[-1] = replace(step, plan=noted)
    return module


def _measured(
    make: Callable[[Backend], OptimizedModule],
    planner: StepPlanner,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> tuple[OptimizedModule, int]:
    module = make(Backend(planner, lowering="inductor"))
    module.plan_for(*args, **kwargs)
    return module, measured_peak_bytes(module, args, kwargs)
