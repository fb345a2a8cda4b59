"""Plans of published instances and of real training steps, beside the best known and the bounds.

    python -m benchmarks.plans [--quick] [--time-limit 60] [--only NAME ...] [--json FILE]

Published instances are looked for in ../shared/instances, which is not part of this project; the
training steps are the examples, captured with fake tensors and the analytic profile. Every time
and peak is recomputed by `simulate` from a schedule that `verify` accepted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from memplan.graph_capture.graph import Graph
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import load_solver
from memplan.planner.verify import verify

INSTANCES = Path(__file__).resolve().parents[2] / "shared" / "instances"
MONET = ("monet_vgg16", "monet_unet", "monet_mobilenet", "monet_r50")
KNOWN_PERCENT: dict[str, dict[int, float | None]] = {
    "cm_cm1": {90: 0.029, 80: 0.136, 70: 0.891},
    "cm_cm2": {90: 0.108, 80: 0.279, 70: 0.564},
    "rl100": {90: 0.789, 80: 2.296, 70: 7.348},
    "rl250": {90: 0.904, 80: 4.9, 70: None},
    "rl500": {90: 0.7, 80: 3.4, 70: None},
    "rl1000": {90: 0.7, 80: 3.4, 70: None},
}
"""Extra time in per cent by budget in per cent of the peak, the captured order kept: proven, or
the best that Moccasin (ICML 2023) reports."""

STEPS: dict[str, dict[str, int]] = {
    "vgg16": {},
    "unet": {},
    "resnet50": {},
    "bert_base": {},
    "gpt2": {},
    "vit_b16": {},
    "t5_small": {},
    "llama_8layer": {},
}
"""Examples, with the sizes that differ from the example's own."""
STEP_PERCENTS = (70, 50, 30)
QUICK = ("monet_vgg16", "monet_unet", "cm_cm1", "rl100", "vgg16", "unet", "gpt2")

COLUMNS = ("graph", "ops", "budget", "extra", "proven", "model", "known", "gap", "status", "s")


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few graphs, 20 s each at most")
    parser.add_argument("--only", nargs="*", help="names of instances and examples")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a budget")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    names = options.only or (QUICK if options.quick else None)
    time_s = min(options.time_limit, 20.0) if options.quick else options.time_limit
    rows = []
    for name, graph, budget_bytes, known in questions(names):
        rows.append(plan(graph, budget_bytes, known, options.solver, time_s) | {"graph": name})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    Console().print(_table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def questions(
    names: tuple[str, ...] | list[str] | None,
) -> Iterator[tuple[str, Graph, int, float | None]]:
    """Yield name, graph, budget and the best known share of extra time."""
    for name in (*MONET, *KNOWN_PERCENT):
        path = INSTANCES / f"{name}.json"
        if (names and name not in names) or not path.exists():
            continue
        graph = read_graph(path)
        if name in MONET:
            for known in json.loads(path.read_text())["known"]:
                yield name, graph, known["budget"], known["cost"] / graph.time_ns - 1
            continue
        for percent, best in KNOWN_PERCENT[name].items():
            budget_bytes = _peak_bytes(graph) * percent // 100
            yield name, graph, budget_bytes, None if best is None else best / 100
    for name, sizes in STEPS.items():
        if names and name not in names:
            continue
        graph = captured(name, sizes)
        for percent in STEP_PERCENTS:
            yield name, graph, _peak_bytes(graph) * percent // 100, None


def captured(name: str, sizes: dict[str, int]) -> Graph:
    """Capture an example with fake tensors: nothing is allocated."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    import memplan

    example = importlib.import_module(f"examples.{name}")
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = example.example_inputs(**sizes)
        args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
        return memplan.capture(
            example.model(**sizes),
            args,
            kwargs,
            loss=example.loss,
            optimizer="adamw",
            profile="analytic",
        )


def plan(
    graph: Graph, budget_bytes: int, known: float | None, solver: str, time_s: float
) -> dict[str, Any]:
    """Solve one problem; times are shares of the step without recomputation."""
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    cpu_s, began = time.process_time(), time.monotonic()
    solution = load_solver(solver).solve(problem, Limits(time_s=time_s))
    row: dict[str, Any] = {
        "ops": len(graph.ops),
        "budget_bytes": budget_bytes,
        "budget": budget_bytes / _peak_bytes(graph),
        "status": solution.status.value,
        "known": known,
        "proven": solution.proven_bound_ns / graph.time_ns - 1,
        "model": None
        if solution.model_bound_ns is None
        else solution.model_bound_ns / graph.time_ns - 1,
        "minimum_bytes": solution.minimum_bytes,
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - cpu_s,
        "stages": dict(solution.stats),
    }
    if solution.schedule is not None:
        verify(problem, solution.schedule)
        time_ns = simulate(graph, solution.schedule).time_ns
        row["extra"] = time_ns / graph.time_ns - 1
        row["gap"] = time_ns / solution.proven_bound_ns - 1
    return row


def _peak_bytes(graph: Graph) -> int:
    return simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("graph", "status") else "right")
    for row in rows:
        shares = {
            key: _share(row.get(key)) for key in ("extra", "proven", "model", "known", "gap")
        }
        cells = row | shares | {"budget": f"{row['budget']:.1%}", "s": f"{row['seconds']:.1f}"}
        table.add_row(*(str(cells[column]) for column in COLUMNS))
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3%}"


if __name__ == "__main__":
    sys.exit(main())
