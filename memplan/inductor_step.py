"""A step that Inductor runs: planned, measured, and planned again where the plan was off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from memplan.codegen.backend import Lowering
from memplan.codegen.measured_step import measured_peak_bytes
from memplan.codegen.optimized_module import OptimizedModule
from memplan.errors import InfeasibleBudget, MemplanError
from memplan.planner.plan import Plan
from memplan.step_planner import StepPlanner
from memplan.units import format_bytes


class Make(Protocol):
    """Makes the module that runs by the plans of a planner, lowered one way."""

    def __call__(self, planner: StepPlanner, *, lowering: Lowering) -> OptimizedModule:
        """Return the module; nothing is planned yet."""
        ...


@dataclass(frozen=True, slots=True)
class _Trial:
    """A planned step as Inductor runs it.

    Attributes:
        module: What runs it.
        measured_bytes: Its peak.
    """

    module: OptimizedModule
    measured_bytes: int

    @property
    def plan(self) -> Plan:
        return self.module.plan


def fitted_step(
    make: Make,
    planner: StepPlanner,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> OptimizedModule:
    """Return the step by the fastest plan tried whose measured peak is within the budget.

    Inductor fuses and orders for itself, so that a step needs more or less than its plan says. It
    is planned again for as much less, or more, until it is near the budget; if it stays over, then
    in the layouts that were captured, too.

    Args:
        make: Makes the module that runs by the plans of a planner, lowered one way.
        planner: Plans for the budget. Steps of other shapes, which are not measured, follow it
            too, or the plan for less if the first one needed that.
        args: Example inputs, by position.
        kwargs: Example inputs, by name.

    Raises:
        MemplanError: The step is over its budget by every plan.
    """
    trials = _trials(partial(make, lowering="inductor"), planner, args, kwargs)
    asked_bytes = trials[0].plan.budget_bytes
    if all(trial.measured_bytes > asked_bytes for trial in trials):
        trials += _trials(partial(make, lowering="inductor-as-captured"), planner, args, kwargs)
    if planner.budget == "min":
        asked_bytes = min(trial.measured_bytes for trial in trials)
    fitting = [trial for trial in trials if trial.measured_bytes <= asked_bytes]
    if not fitting:
        least_bytes = min(trial.measured_bytes for trial in trials)
        raise MemplanError(
            f"under Inductor the step takes {least_bytes:,} bytes, {asked_bytes:,} were "
            f"asked for; ask for {least_bytes:,} or leave backend='inductor' out"
        )
    best = min(fitting, key=lambda trial: trial.plan.timeline.time_ns)
    if best.plan.budget_bytes > asked_bytes:
        best.module._backend.plan_for = planner
    _note(best, asked_bytes)
    return best.module


_TRIALS = 3
"""How often a step is planned and compiled at most, in either layouts."""

_NEAR = 0.01
"""A peak that is below the budget by no more than this share of it is near."""


def _trials(
    make: Callable[[StepPlanner], OptimizedModule],
    planner: StepPlanner,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[_Trial]:
    """Plan and measure until the step is near its budget, or as often as it helps."""
    trials = [_tried(make, planner, args, kwargs)]
    asked_bytes = trials[0].plan.budget_bytes
    while len(trials) < _TRIALS and planner.budget != "min":
        next_bytes = _next_budget_bytes(trials, asked_bytes)
        if next_bytes is None:
            break
        try:
            trials.append(_tried(make, replace(planner, budget=next_bytes), args, kwargs))
        except InfeasibleBudget:
            break
    return trials


def _tried(
    make: Callable[[StepPlanner], OptimizedModule],
    planner: StepPlanner,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> _Trial:
    module = make(planner)
    module.plan_for(*args, **kwargs)
    return _Trial(module, measured_peak_bytes(module, args, kwargs))


def _next_budget_bytes(trials: Sequence[_Trial], asked_bytes: int) -> int | None:
    """Return the budget to plan for next; None where that would not help."""
    last = trials[-1]
    spare_bytes = asked_bytes - last.measured_bytes
    if spare_bytes >= 0 and (last.plan.recomputed_ops == 0 or spare_bytes < _NEAR * asked_bytes):
        return None
    # From the peak, not the budget: a plan can be far below what it was allowed.
    base_bytes = last.plan.budget_bytes if spare_bytes > 0 else last.plan.planned_peak_bytes
    next_bytes = base_bytes + spare_bytes
    return None if next_bytes in {trial.plan.budget_bytes for trial in trials} else next_bytes


def _note(trial: _Trial, asked_bytes: int) -> None:
    """Say in the notes of the plan what was measured."""
    step = trial.module.steps[-1]
    planned, measured = (
        format_bytes(size) for size in (step.plan.planned_peak_bytes, trial.measured_bytes)
    )
    note = (
        f"Under Inductor the step was measured at {measured}, planned at {planned} for a budget "
        f"of {format_bytes(asked_bytes)}."
    )
    noted = replace(step.plan, notes=(*step.plan.notes, note))
    trial.module._backend.steps[-1] = replace(step, plan=noted)
