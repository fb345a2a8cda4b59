"""The memory of a planned step beside that of the unplanned one, drawn for a paper or a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.planner.history import Run, Stall, history
from memplan.planner.plan import Plan
from memplan.planner.schedule import Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.tiers import Tier

PICTURES = (".png", ".svg", ".pdf")


def draw(plan: Plan, output: Path) -> None:
    """Draw memory over time, before and after, with the budget; the ending names the format.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise UsageError("pictures need matplotlib: pip install 'memplan[plots]'") from None
    from matplotlib.figure import Figure

    # Without the date, the same plan gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "memplan", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        _fill(figure.subplots(), plan)
        is_svg = output.suffix.lower() == ".svg"
        figure.savefig(output, dpi=160, metadata={"Date": None} if is_svg else None)


def _fill(axes: Any, plan: Plan) -> None:
    graph = plan.graph
    unplanned = schedule_of(graph, range(len(graph.ops)))
    _curve(axes, plan, unplanned, (), "without a plan", "#9aa5b1")
    label = f"planned, {plan.overhead:+.1%} time"
    _curve(axes, plan, plan.schedule, plan.tiers, label, "#1f6feb")
    axes.axhline(plan.budget_bytes / 1e9, color="#d1242f", linestyle="--", linewidth=1.2)
    axes.text(0, plan.budget_bytes / 1e9, " budget", color="#d1242f", va="bottom", fontsize=9)
    axes.set_xlabel("time of the step in seconds, by the profile")
    axes.set_ylabel("device memory in GB")
    axes.set_title(f"One training step of {graph.name}", loc="left", fontsize=11)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.legend(frameon=False, loc="lower center", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _curve(
    axes: Any, plan: Plan, schedule: Schedule, tiers: Sequence[Tier], label: str, color: str
) -> None:
    told = history(plan.graph, schedule, tiers)
    live_bytes = simulate(plan.graph, schedule, tiers).live_bytes
    seconds, gigabytes = [0.0], [plan.graph.given_bytes / 1e9]
    pieces: list[Run | Stall] = [*told.runs, *told.stalls]
    for piece in sorted(pieces, key=lambda piece: piece.step):
        seconds += [piece.start_ns / 1e9, piece.end_ns / 1e9]
        gigabytes += [live_bytes[piece.step] / 1e9] * 2
    axes.plot(seconds, gigabytes, color=color, linewidth=1.4, label=label)
    axes.fill_between(seconds, gigabytes, color=color, alpha=0.12, linewidth=0)
