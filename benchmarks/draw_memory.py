"""Draw the memory of a planned step beside that of the unplanned one.

memplan compile examples/unet.py --budget 50% -o unet-plan
python -m benchmarks.draw_memory unet-plan -o docs/memory.png
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from memplan.codegen.artifacts import PLAN_FILE
from memplan.graph_capture.graph import Graph
from memplan.planner.plan import Plan
from memplan.planner.schedule import Compute, Schedule, schedule_of
from memplan.planner.simulate import simulate


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder that `memplan compile -o` wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="PNG or SVG file")
    options = parser.parse_args()
    draw(Plan.load(options.folder / PLAN_FILE), options.output)
    return 0


def draw(plan: Plan, output: Path) -> None:
    """Draw memory over time, before and after, with the budget."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 3.6), layout="constrained")
    graph = plan.graph
    unplanned = schedule_of(graph, range(len(graph.ops)))
    _curve(axes, graph, unplanned, "without a plan", "#9aa5b1")
    _curve(axes, graph, plan.schedule, f"planned, {plan.overhead:+.1%} time", "#1f6feb")
    axes.axhline(plan.budget_bytes / 1e9, color="#d1242f", linestyle="--", linewidth=1.2)
    axes.text(0, plan.budget_bytes / 1e9, " budget", color="#d1242f", va="bottom", fontsize=9)
    axes.set_xlabel("time of the step in seconds, by the profile")
    axes.set_ylabel("device memory in GB")
    axes.set_title(f"One training step of {graph.name}", loc="left", fontsize=11)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.legend(frameon=False, loc="upper right", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(output, dpi=160)


def _curve(axes: Any, graph: Graph, schedule: Schedule, label: str, color: str) -> None:
    live_bytes = simulate(graph, schedule).live_bytes
    seconds, gigabytes, now = [0.0], [graph.given_bytes / 1e9], 0.0
    for step, nbytes in zip(schedule, live_bytes, strict=True):
        if isinstance(step, Compute):
            seconds.append(now)
            gigabytes.append(nbytes / 1e9)
            now += graph.ops[step.op].time_ns / 1e9
            seconds.append(now)
            gigabytes.append(nbytes / 1e9)
    axes.plot(seconds, gigabytes, color=color, linewidth=1.4, label=label)
    axes.fill_between(seconds, gigabytes, color=color, alpha=0.12, linewidth=0)


if __name__ == "__main__":
    sys.exit(main())
