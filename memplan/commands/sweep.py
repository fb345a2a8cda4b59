"""`memplan sweep`: time against memory over many budgets, from one capture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from memplan.commands.model_step import capture_step, is_here, read_file
from memplan.commands.options import (
    GET_DEVICE,
    GET_JSON,
    GET_OFFLINE,
    GET_OPTIMIZER,
    GET_PROFILE,
    GET_SOLVER,
    PATH,
    get_time_limit,
)
from memplan.errors import UsageError
from memplan.planner.solver import load_solver
from memplan.progress import stages_shown
from memplan.results import print_json
from memplan.units import format_bytes, format_ns, parse_budget

if TYPE_CHECKING:
    from memplan.graph_capture.graph import Graph
    from memplan.planner.sweep import SweepPoint

_BUDGETS = "100%,90%,80%,70%,60%,50%,40%,min"
_ANY_BYTES = 2**40


@click.command(
    short_help="Show time against memory over budgets.",
    epilog="Example: memplan sweep examples/unet.py --budgets 90%,70%,50%,min --plot curve.png",
)
@click.argument("file", type=PATH)
@click.option(
    "--budgets",
    default=_BUDGETS,
    show_default=True,
    metavar="SIZES",
    help="Budgets with commas between them, each as for `memplan compile`.",
)
@GET_SOLVER
@GET_DEVICE
@GET_PROFILE
@GET_OFFLINE
@GET_OPTIMIZER
@get_time_limit(20.0)
@click.option("--plot", type=PATH, metavar="FILE", help="Draw the curve: PNG, SVG or PDF.")
@GET_JSON
def sweep(
    file: Path,
    budgets: str,
    solver: str,
    device: str | None,
    profile: str | None,
    offline: bool,
    optimizer: str | None,
    time_limit: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Plan the model in FILE for many budgets, and show what each costs.

    The step is captured and priced once. FILE may also be a graph in JSON, as `memplan solve`
    takes it. --time-limit is for each budget.
    """
    from memplan.planner import sweep as sweeping
    from memplan.planner.problem import Limits

    asked = [budget.strip() for budget in budgets.split(",") if budget.strip()]
    if not asked:
        raise UsageError("name budgets with commas between them, such as --budgets 90%,70%,min")
    for budget in asked:
        parse_budget(budget, _ANY_BYTES, _ANY_BYTES)
    load_solver(solver)
    if plot is not None:
        _check_plot()
    with stages_shown() as stages, redirect_stdout(sys.stderr):
        stages("capturing", 0, 0)
        if file.suffix == ".json":
            from memplan.graph_capture.graph_files import read_graph

            graph = read_graph(file)
        else:
            model_file = read_file(file, offline=offline or not is_here(device))
            graph = capture_step(
                model_file, optimizer=optimizer, device=device, profile=profile, stages=stages
            )
        limits = Limits(time_s=time_limit)
        points = sweeping.sweep(graph, asked, solver=solver, limits=limits, progress=stages)
    best = sweeping.knee(points)
    if plot is not None:
        _draw(points, best, graph, plot)
    if as_json:
        print_json(sweep_result(points, best))
    else:
        _print(points, best)


def sweep_result(points: Sequence[SweepPoint], best: SweepPoint | None) -> dict[str, Any]:
    """Return a sweep under the keys that machines read."""
    return {
        "knee": best.budget if best is not None else None,
        "points": [
            {
                "budget": point.budget,
                "reason": point.reason,
                "feasible_bytes": point.feasible_bytes,
                "limit_bytes": point.limit_bytes,
            }
            | (point.plan.summary() if point.plan is not None else {})
            for point in points
        ],
    }


def _print(points: Sequence[SweepPoint], best: SweepPoint | None) -> None:
    from memplan.tables import print_plainly

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("budget", "planned peak", "of unplanned", "extra time", "at least", "step"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for point in points:
        plan = point.plan
        if plan is None:
            known = point.feasible_bytes
            least = f"; smallest known {format_bytes(known)}" if known else ""
            table.add_row(point.budget, "-", "-", "-", "-", "-", f"{point.reason}{least}")
            continue
        share = plan.planned_peak_bytes / max(1, plan.unplanned_peak_bytes)
        table.add_row(
            point.budget,
            format_bytes(plan.planned_peak_bytes),
            f"{share:.1%}",
            f"+{plan.overhead:.2%}",
            f"+{plan.proven_bound:.2%}",
            format_ns(plan.planned_time_ns),
            "<- knee: less memory gets dear from here" if point is best else plan.status.value,
        )
    print_plainly(table)


def _check_plot() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib; run `pip install 'memplan[plots]'`")


def _draw(
    points: Sequence[SweepPoint], best: SweepPoint | None, graph: Graph, output: Path
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from memplan.planner.sweep import pareto

    plans = [point.plan for point in pareto(points) if point.plan is not None]
    figure, axes = pyplot.subplots(figsize=(6.4, 3.8), layout="constrained")
    gigabytes = [plan.planned_peak_bytes / 1e9 for plan in plans]
    percent = [100 * plan.overhead for plan in plans]
    axes.step(gigabytes, percent, where="pre", color="#9aa5b1", linewidth=1)
    axes.plot(gigabytes, percent, "o", color="#1f6feb", label="plan")
    bounds = [100 * plan.proven_bound for plan in plans]
    axes.plot(gigabytes, bounds, "_", color="#57606a", label="proven: no plan is faster")
    if best is not None and best.plan is not None:
        at = (best.plan.planned_peak_bytes / 1e9, 100 * best.plan.overhead)
        axes.plot(*at, "o", markersize=13, markerfacecolor="none", color="#d1242f", label="knee")
    axes.set_xlabel("peak of the step in GB")
    axes.set_ylabel("extra time in %")
    axes.set_title(f"Time against memory of {graph.name or 'the graph'}", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    try:
        figure.savefig(output, dpi=160)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw to {output}: {error}") from None
    finally:
        pyplot.close(figure)
