"""Plan the training step that Rockmate was measured on, beside its published kind of figures.

    python -m benchmarks.rockmate_ground [--profile analytic|measured] [--time-limit 60]

GPT-2 widths, 12 layers, batch 1, 256 tokens, vocabulary 8192. As there, gradients are held before
the step begins, and a budget is a share of the activations' peak: what the unplanned step holds
beyond parameters, gradients and inputs. Theirs are Rockmate's H-ILP and rotor, measured on
another machine's profile (CPU, torch 2.3.1), so a difference of a few points says little.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import memplan
from examples import gpt2
from memplan.graph_capture.graph import Graph, Kind
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import load_solver
from memplan.planner.verify import verify

SIZES = {"layers": 12, "batch": 1, "tokens": 256, "words": 8192}
H_ILP = {75: (0.019, 763 + 142), 50: (0.133, 763 + 220), 25: (0.270, 763 + 164)}
"""Extra time and seconds of solving (all blocks once, then the budget), by budget in per cent."""
ROTOR = {75: 0.111, 50: 0.199, 25: 0.291}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", choices=("analytic", "measured"), default="analytic")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a budget")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.manual_seed(0)
    graph = _with_gradients_held(
        memplan.capture(
            gpt2.model(**SIZES),
            gpt2.example_inputs(**SIZES),
            loss=gpt2.loss,
            profile=options.profile,
        )
    )
    rows = [_row(graph, percent, options.time_limit) for percent in H_ILP]
    Console(width=110).print(_table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def _with_gradients_held(graph: Graph) -> Graph:
    """Make each gradient a temporary, added to one that is held from the start."""
    gradients = [t for t in graph.tensors if t.kind is Kind.GRADIENT]
    tensors = [
        replace(t, kind=Kind.TEMPORARY) if t.kind is Kind.GRADIENT else t for t in graph.tensors
    ]
    held = [replace(t, name=f"{t.name}_held", kind=Kind.BUFFER) for t in gradients]
    return replace(graph, tensors=(*tensors, *held))


def _row(graph: Graph, percent: int, time_s: float) -> dict[str, Any]:
    plain = simulate(graph, schedule_of(graph, range(len(graph.ops))))
    made = {t for op in graph.ops for t in op.outputs}
    held_bytes = sum(t.nbytes for i, t in enumerate(graph.tensors) if i not in made)
    activations_bytes = plain.peak_bytes - held_bytes
    budget_bytes = held_bytes + activations_bytes * percent // 100
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    began = time.monotonic()
    solution = load_solver("auto").solve(problem, Limits(time_s=time_s))
    row: dict[str, Any] = {
        "percent": percent,
        "activations_bytes": activations_bytes * percent // 100,
        "status": solution.status.value,
        "proven": solution.proven_bound_ns / graph.time_ns - 1,
        "seconds": time.monotonic() - began,
        "h_ilp": H_ILP[percent][0],
        "h_ilp_seconds": H_ILP[percent][1],
        "rotor": ROTOR[percent],
    }
    if solution.schedule is not None:
        verify(problem, solution.schedule)
        row["extra"] = simulate(graph, solution.schedule).time_ns / graph.time_ns - 1
    return row


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None)
    for column in ("budget", "extra", "proven", "s", "H-ILP", "its s", "rotor", "activations"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row['percent']}%",
            f"{row['extra']:+.2%}" if "extra" in row else row["status"],
            f"{row['proven']:+.2%}",
            f"{row['seconds']:.1f}",
            f"{row['h_ilp']:+.1%}",
            str(row["h_ilp_seconds"]),
            f"{row['rotor']:+.1%}",
            f"{row['activations_bytes'] / 2**20:.0f} MiB",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
