"""Draw the memory of a training step over time, without and with a plan.

    python -m benchmarks.plot_memory examples/gpt2.py --budget 50% -o docs/memory.png

It needs matplotlib: `pip install -e ".[plots]"`.
"""

from __future__ import annotations

import argparse
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import memplan
from memplan.graph_capture.graph import Graph
from memplan.model_file import read_model_file
from memplan.planner.plan import Plan
from memplan.planner.schedule import Compute, Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.units import format_bytes

GREY, BLUE, RED = "#8c8c8c", "#1f6feb", "#cf222e"


def main() -> int:
    """Plan, draw, and say what the figure shows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--budget", default="50%")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/memory.png"))
    options = parser.parse_args()
    file = read_model_file(options.file)
    plan = memplan.plan(
        file.model,
        file.args,
        file.kwargs,
        loss=file.loss,
        optimizer=file.optimizer,
        budget=options.budget,
        solver=options.solver,
        time_limit=options.time_limit,
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(plan, options.output)
    print(
        f"{options.output}: {options.file} --budget {options.budget}: "
        f"{format_bytes(plan.unplanned_peak_bytes)} -> {format_bytes(plan.planned_peak_bytes)}, "
        f"{plan.recomputed_ops} ops run again, +{plan.overhead:.1%} time by the profile"
    )
    return 0


def memory_over_time(graph: Graph, schedule: Schedule) -> tuple[list[float], list[float]]:
    """Return the corners of the curve: seconds, and gigabytes in use."""
    timeline = simulate(graph, schedule)
    spans_ns = [graph.ops[s.op].time_ns if isinstance(s, Compute) else 0 for s in schedule]
    edges_s = [ns / 1e9 for ns in accumulate(spans_ns, initial=0)]
    times_s, used_gb = [], []
    for (start_s, end_s), live_bytes in zip(pairwise(edges_s), timeline.live_bytes, strict=True):
        times_s += [start_s, end_s]
        used_gb += [live_bytes / 1e9] * 2
    return times_s, used_gb


def draw(plan: Plan, path: Path) -> None:
    """Write the figure of one plan to `path`; the ending of its name decides the format."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    graph = plan.graph
    before = memory_over_time(graph, schedule_of(graph, range(len(graph.ops))))
    after = memory_over_time(graph, plan.schedule)
    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for (times_s, used_gb), colour, label, peak_bytes in (
        (before, GREY, "unplanned", plan.unplanned_peak_bytes),
        (after, BLUE, "planned", plan.planned_peak_bytes),
    ):
        axes.fill_between(times_s, used_gb, color=colour, alpha=0.15, linewidth=0)
        axes.plot(times_s, used_gb, color=colour, linewidth=1.2)
        top = used_gb.index(max(used_gb))
        axes.annotate(
            f"{label}: {format_bytes(peak_bytes)}",
            (times_s[top], used_gb[top]),
            xytext=(6, 4),
            textcoords="offset points",
            color=colour,
            fontweight="bold",
        )
    budget_gb = plan.budget_bytes / 1e9
    axes.axhline(budget_gb, color=RED, linewidth=1, linestyle="--")
    axes.annotate(
        f"budget: {format_bytes(plan.budget_bytes)}",
        (0, budget_gb),
        xytext=(4, 4),
        textcoords="offset points",
        color=RED,
    )
    axes.set_xlim(0, max(after[0][-1], before[0][-1]))
    axes.set_ylim(0, 1.12 * max(before[1]))
    axes.set_xlabel("time in the step, s (sum of measured op times)")
    axes.set_ylabel("memory in use, GB")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
