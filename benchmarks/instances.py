"""Prints a solver's overhead on the published instances beside the best values known.

    python benchmarks/instances.py greedy 8 monet_vgg16 dtr/unet

Arguments: solver, seconds a budget, instances (all where none is named). The instances are
not part of this project; they are looked for in ../shared/instances.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from memplan.graph_capture.graph_files import read_graph
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solver, load_solver
from memplan.planner.verify import verify

FOLDER = Path(__file__).parents[2] / "shared" / "instances"
PERCENTS = (90, 80, 70, 60, 50, 40, 30)

KNOWN_PERCENT: dict[str, dict[int, float]] = {
    "cm_cm1": {90: 0.029, 80: 0.136, 70: 0.891},
    "cm_cm2": {90: 0.108, 80: 0.279, 70: 0.564},
    "cm_mobilenet": {90: 0.163, 80: 0.370, 70: 0.626, 50: 1.638},
    "cm_unet": {90: 1.129, 80: 1.984, 70: 2.967, 50: 6.967},
    "cm_segnet": {90: 0.103, 80: 0.207, 70: 0.311, 50: 40.66},
    "cm_vgg16": {90: 1.968},
    "cm_vgg19": {90: 0.104, 80: 2.756},
    "rl100": {90: 0.789, 80: 2.296, 70: 7.348},
    "rl250": {90: 0.904},
    "dtr/resnet32": {90: 1.31, 80: 2.48, 70: 4.63, 60: 7.37, 50: 10.68, 40: 14.04, 30: 17.86},
    "dtr/unet": {90: 3.31, 80: 5.77, 70: 8.46, 60: 14.89, 50: 15.87},
    "dtr/tv_densenet121": {
        **{90: 2.58, 80: 6.38, 70: 10.36, 60: 14.14},
        **{50: 17.63, 40: 29.28, 30: 42.58},
    },
    "dtr/inceptionv4": {
        **{90: 0.79, 80: 2.44, 70: 4.42, 60: 6.62},
        **{50: 9.19, 40: 13.8, 30: 24.35},
    },
}
"""Overhead in per cent by budget in per cent of the plain peak, from the literature or found
before; the traces (dtr/) by DTR's own simulator."""


def main(arguments: list[str]) -> None:
    """Run the solver on every instance and budget that is asked for."""
    solver = load_solver(arguments[0] if arguments else "greedy")
    time_s = float(arguments[1]) if len(arguments) > 1 else 8.0
    names = arguments[2:] or [
        str(path.relative_to(FOLDER).with_suffix(""))
        for path in (*sorted(FOLDER.glob("*.json")), *sorted(FOLDER.glob("dtr/*.json")))
    ]
    print("instance           ops   budget %  overhead %  bound %  known %  status      seconds")
    for name in names:
        report(solver, name, time_s)


def report(solver: Solver, name: str, time_s: float) -> None:
    """Print one line for each budget of one instance."""
    path = FOLDER / f"{name}.json"
    graph = read_graph(path)
    plain = schedule_of(graph, range(len(graph.ops)))
    peak_bytes = simulate(graph, plain).peak_bytes
    known = {
        peak_bytes * percent // 100: KNOWN_PERCENT.get(name, {}).get(percent)
        for percent in PERCENTS
    }
    published = json.loads(path.read_text()).get("known")
    if published:
        known = {x["budget"]: 100 * (x["cost"] / graph.time_ns - 1) for x in published}
    for budget_bytes, known_percent in sorted(known.items(), reverse=True):
        problem = Problem(graph=graph, budget_bytes=budget_bytes)
        began = time.process_time()
        solution = solver.solve(problem, Limits(time_s=time_s))
        seconds = time.process_time() - began
        overhead = "-"
        if solution.schedule is not None:
            verify(problem, solution.schedule)
            time_ns = simulate(graph, solution.schedule).time_ns
            overhead = f"{100 * (time_ns / graph.time_ns - 1):.3f}"
        bound = f"{100 * (solution.proven_bound_ns / graph.time_ns - 1):.3f}"
        reference = "-" if known_percent is None else f"{known_percent:.3f}"
        print(
            f"{name:18} {len(graph.ops):5} {100 * budget_bytes / peak_bytes:8.1f} {overhead:>11}"
            f" {bound:>8} {reference:>8}  {solution.status.value:10} {seconds:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
