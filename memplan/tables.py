"""What people read: a plan and its check as tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memplan.codegen.check import Check
from memplan.planner.plan import Plan
from memplan.units import format_bytes, format_ns

_KIND_NAMES = {
    "param": "parameters",
    "buffer": "buffers",
    "input": "inputs",
    "optimizer_state": "optimizer state",
    "output": "outputs",
    "gradient": "gradients",
    "activation": "activations",
    "temporary": "temporaries",
    "update": "optimizer step",
}


def plan_table(plan: Plan, seconds: dict[str, float]) -> RenderableType:
    """Return the plan at a glance.

    Args:
        plan: The plan.
        seconds: What took how long, by name, in order.
    """
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    unplanned = plan.unplanned_peak_bytes
    table.add_row("unplanned peak", format_bytes(unplanned), f"{unplanned:,} bytes")
    table.add_row(
        "planned peak",
        format_bytes(plan.planned_peak_bytes),
        f"{plan.planned_peak_bytes:,} bytes, {plan.planned_peak_bytes / unplanned:.1%} of it",
    )
    table.add_row("budget", format_bytes(plan.budget_bytes), f"{plan.budget_bytes:,} bytes")
    table.add_row(
        "extra time",
        f"+{plan.overhead:.2%}",
        f"{plan.recomputed_ops} ops run again; step {format_ns(plan.unplanned_time_ns)} "
        f"-> {format_ns(plan.planned_time_ns)} by the profile",
    )
    table.add_row("proven bound", f"+{plan.proven_bound:.2%}", f"gap {plan.gap:.2%} of the step")
    if plan.model_bound is not None:
        table.add_row("model bound", f"+{plan.model_bound:.2%}", "in the solver's own model")
    took = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    table.add_row("solver", plan.solver, f"{plan.status.value}; {took}")
    notes = [Text(note, style="italic") for note in plan.notes]
    return Group(table, "", _bytes_table(plan), *notes)


def _bytes_table(plan: Plan) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title="at the peak", title_justify="left")
    table.add_column("what", style="bold")
    table.add_column("bytes", justify="right")
    table.add_column("share", justify="right")
    for kind, nbytes in plan.bytes_at_peak.items():
        share = f"{nbytes / plan.planned_peak_bytes:.1%}"
        table.add_row(_KIND_NAMES.get(kind, kind), format_bytes(nbytes), share)
    return table


def check_table(check: Check) -> RenderableType:
    """Return what the check of a plan found."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    off = check.measured_peak_bytes / check.planned_peak_bytes - 1
    table.add_row(
        "measured peak",
        format_bytes(check.measured_peak_bytes),
        f"{check.measured_peak_bytes:,} bytes, {off:+.3%} from the plan",
    )
    table.add_row(
        "unplanned",
        format_bytes(check.unplanned_measured_peak_bytes),
        f"{check.unplanned_measured_peak_bytes:,} bytes measured",
    )
    table.add_row("step time", f"x {check.step_time_ratio:.2f}", "of the unplanned step")
    verdict = "bit-identical" if check.gradients_identical else "DIFFERENT"
    others = "loss and state too" if check.identical else "LOSS OR STATE DIFFER"
    table.add_row("gradients", verdict, f"{others}, over {check.steps} step(s)")
    return table
