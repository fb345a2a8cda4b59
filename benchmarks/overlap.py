"""What the simulator says of a step that moves tensors over a link, beside what it takes.

    python -m benchmarks.overlap [--links 1GB/s 4GB/s 16GB/s 64GB/s] [--budget 50%] [--repeats 5]

The profile's times of ops are scaled to the plain step as it is measured in the same run, so that
only the transfers are judged, not how busy the machine was when it was profiled. The link is
emulated by `--swap host`: a transfer lasts as long as the tier says. Both figures are the time of
the planned step over that of the unplanned one; measured is the median of the repeats, planned
and unplanned steps in turn. Run it on an idle machine: on one that is not, other programs delay
the copies that were to run beside the step. The exit code is 1 where the two are more than 15 %
apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import memplan
from memplan.codegen.check import check
from memplan.planner.simulate import simulate

APART = 0.15


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each solver and link."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--links", nargs="+", default=["1GB/s", "4GB/s", "16GB/s", "64GB/s"])
    parser.add_argument("--solvers", nargs="+", default=["auto", "save-on-cpu"])
    parser.add_argument("--budget", default="50%")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    asked = parser.parse_args(argv)
    # The copies need a core of their own.
    torch.set_num_threads(1)
    print(f"{'solver':12} {'link':>8} {'moved':>9} {'predicted':>10} {'measured':>9} {'apart':>7}")
    rows = [_measured(solver, link, asked) for solver in asked.solvers for link in asked.links]
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(abs(row["apart"]) <= APART and row["identical"] for row in rows) else 1


def net(layers: int, width: int) -> nn.Module:
    """Return layers that keep two tensors (rows, width) each."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
    )


def loss(output: torch.Tensor) -> torch.Tensor:
    """Return the mean square."""
    return output.square().mean()


def _measured(solver: str, link: str, asked: argparse.Namespace) -> dict[str, Any]:
    torch._dynamo.reset()
    x = torch.randn(asked.rows, asked.width)
    module = memplan.compile(
        *(net(asked.layers, asked.width), x),
        budget=asked.budget,
        loss=loss,
        solver=solver,
        time_limit=10,
        swap="host",
        link=link,
    )
    found = check(module, (x,), steps=2, timed_steps=asked.repeats)
    predicted = _predicted(module.plan, _plain_step_ns(module, x, asked.repeats))
    moved_mb = module.plan.timeline.swapped_bytes / 1e6
    row = {
        "solver": solver,
        "link": link,
        "moved_bytes": module.plan.timeline.swapped_bytes,
        "predicted": predicted,
        "measured": found.step_time_ratio,
        "apart": found.step_time_ratio / predicted - 1,
        "identical": found.identical,
    }
    print(
        f"{solver:12} {link:>8} {moved_mb:6.0f} MB {predicted:10.3f} "
        f"{found.step_time_ratio:9.3f} {row['apart']:+7.1%}",
        flush=True,
    )
    return row


def _plain_step_ns(module: memplan.OptimizedModule, x: torch.Tensor, repeats: int) -> int:
    """Return the median time of a step without a plan."""
    times = []
    for _ in range(repeats + 1):
        module.original.zero_grad(set_to_none=True)
        began_ns = time.perf_counter_ns()
        loss(module.original(x)).backward()
        times.append(time.perf_counter_ns() - began_ns)
    module.original.zero_grad(set_to_none=True)
    return round(statistics.median(times[1:]))


def _predicted(plan: memplan.Plan, step_ns: int) -> float:
    """Return the planned time over that of the unplanned step, if that takes `step_ns`."""
    graph = plan.graph
    scale = step_ns / graph.time_ns
    ops = tuple(replace(op, time_ns=round(op.time_ns * scale)) for op in graph.ops)
    scaled = replace(graph, ops=ops)
    return simulate(scaled, plan.schedule, plan.tiers).time_ns / scaled.time_ns


if __name__ == "__main__":
    sys.exit(main())
