"""What people read: a plan and its check as tables."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memplan.planner.advice import KIND_NAMES
from memplan.planner.grouping import grouped
from memplan.planner.plan import Plan
from memplan.units import format_bytes, format_ns

if TYPE_CHECKING:
    from memplan.codegen.check import Check

_TOP_MODULES = 5
_ONE_LINE = 10_000


def print_plainly(*parts: RenderableType) -> None:
    """Print for whoever reads stdout: fitted to a terminal, else one line a row, no colours."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    text = io.StringIO()
    Console(file=text, width=_ONE_LINE, highlight=False, color_system=None).print(*parts, sep="\n")
    for line in text.getvalue().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def plan_table(plan: Plan, seconds: Mapping[str, float]) -> RenderableType:
    """Return the plan at a glance.

    Args:
        plan: The plan.
        seconds: What took how long, by name, in order.
    """
    table = _facts()
    unplanned, planned = plan.unplanned_peak_bytes, plan.planned_peak_bytes
    table.add_row("unplanned peak", format_bytes(unplanned), f"{unplanned:,} bytes")
    table.add_row(
        "planned peak",
        format_bytes(planned),
        f"{planned:,} bytes, {_share(planned, unplanned)} of it",
    )
    table.add_row("budget", format_bytes(plan.budget_bytes), f"{plan.budget_bytes:,} bytes")
    table.add_row(
        "no plan below",
        format_bytes(plan.limit_bytes),
        f"{plan.limit_bytes:,} bytes, {_share(plan.limit_bytes, unplanned)}, proven",
    )
    table.add_row(
        "extra time",
        f"+{plan.overhead:.2%}",
        f"{plan.recomputed_ops} ops run again; step {format_ns(plan.unplanned_time_ns)} "
        f"-> {format_ns(plan.planned_time_ns)} by the profile",
    )
    if plan.timeline.swapped_bytes:
        moved, stall_ns = format_bytes(plan.timeline.swapped_bytes), plan.timeline.stall_ns
        names = " and ".join(tier.name for tier in plan.tiers)
        table.add_row("moved", moved, f"to {names} and back; {format_ns(stall_ns)} of waiting")
    table.add_row("proven bound", f"+{plan.proven_bound:.2%}", f"gap {plan.gap:.2%} above it")
    if plan.model_bound is not None:
        table.add_row("model bound", f"+{plan.model_bound:.2%}", "in the solver's own model")
    took = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    table.add_row("solver", plan.solver, f"{plan.status.value}; {took}")
    notes = [Padding(Text(f"note: {note}", style="italic"), (1, 0, 0, 0)) for note in plan.notes]
    return Group(table, "", _bytes_table(plan), *_modules_table(plan), *notes)


def check_table(check: Check) -> RenderableType:
    """Return what the check of a plan found."""
    table = _facts()
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


def solver_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return the installed solvers; rows as `solver_result` gives them."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "kind", "exact", "may", "needs", "source"):
        table.add_column(column, overflow="fold", no_wrap=column != "source")
    for row in rows:
        needs = ", ".join(row["needs"]) or "-"
        table.add_row(
            row["name"],
            row["kind"],
            "yes" if row["exact"] else "no",
            ", ".join(row["may"]) or "-",
            needs if row["available"] else f"{needs} (missing)",
            row["source"],
        )
    return table


def share_table(
    what: str, amounts: Mapping[str, int], whole: int, most: int | None = None
) -> Table:
    """Return amounts of bytes with their share of a whole.

    Args:
        what: What the rows are.
        amounts: Bytes by `Kind` value, module or any other name, in order.
        whole: What 100 % is.
        most: Put the rows after so many in one.
    """
    table = _shares(what, "bytes")
    rows = list(amounts.items())
    for name, nbytes in rows[:most]:
        shown = KIND_NAMES.get(name, name) or "(no module)"
        table.add_row(Text(shown), format_bytes(nbytes), _share(nbytes, whole))
    if most is not None and (rest := rows[most:]):
        nbytes = sum(nbytes for _, nbytes in rest)
        table.add_row(f"({len(rest)} more)", format_bytes(nbytes), _share(nbytes, whole))
    return table


def _facts() -> Table:
    """Return an empty table of names, figures and remarks; only the remarks may wrap."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _bytes_table(plan: Plan) -> Table:
    return share_table("at the peak", plan.bytes_at_peak, plan.planned_peak_bytes)


def _modules_table(plan: Plan) -> list[RenderableType]:
    """Return the modules with the largest activations at the peak; none where ops name none."""
    modules = plan.modules_at_peak
    if not any(modules):
        return []
    what, whole = "activations and temporaries", plan.planned_peak_bytes
    return ["", share_table(what, grouped(modules), whole, most=_TOP_MODULES)]


def _shares(what: str, *figures: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(what, style="bold", overflow="fold", header_style="bold underline")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"
