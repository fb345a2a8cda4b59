"""Every swap policy beside recomputation and the joint plan, by the simulator.

    python -m benchmarks.swaps unet gpt2 [--links 1GB/s 4GB/s 16GB/s 64GB/s] [--budgets 60%]
    python -m benchmarks.swaps GRAPH.json [--links 0.2 1.0]

Examples are captured without being run and priced for `--device` by the analytic profile. A link
without a unit is the share of all saved bytes that it carries during one forward pass, so that it
means the same for every graph: 0.2 is about what a training GPU has on PCIe. Figures are the time
of the step over that of the unplanned one; a policy that does not fit has none. The exit code is
1 where the joint plan is slower than any other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memplan.graph_capture.graph import Graph
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.checkpoints import forward_end
from memplan.planner.moves import gaps_of
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import load_solver, solver_entry_points
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify
from memplan.units import parse_budget, parse_speed

ROOT = Path(__file__).resolve().parent.parent
RECOMPUTING = ("greedy", "windowed")
JOINT = "joint"
_HAIR = 1e-3
"""So far apart are two runs of a solver that stops at the clock."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print one table for each graph; 1 where the joint plan loses."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("graphs", nargs="+", help="examples, or files with a graph")
    parser.add_argument("--budgets", nargs="+", default=["70%", "50%", "35%"])
    parser.add_argument("--links", nargs="+", default=["1GB/s", "4GB/s", "16GB/s", "64GB/s"])
    parser.add_argument("--device", default="rtx3090", help="what the examples are priced for")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    asked = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    for name in asked.graphs:
        rows += _table_of(name, asked)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["joint_wins"] for row in rows) else 1


def graph_called(name: str, device: str) -> Graph:
    """Return the graph of an example, or that in a file."""
    if name.endswith(".json"):
        return read_graph(Path(name))
    import memplan
    from memplan.model_file import read_model_file

    file = read_model_file(ROOT / "examples" / f"{name}.py")
    return memplan.capture(
        *(file.model, file.args, file.kwargs),
        loss=file.loss,
        optimizer=file.optimizer,
        device=device,
        profile="analytic",
    )


def _table_of(name: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    graph = graph_called(name, asked.device)
    cells = [(link, budget) for link in asked.links for budget in asked.budgets]
    print(f"{Path(name).stem}, {len(graph.ops)} ops, {graph.time_ns / 1e6:,.1f} ms a step")
    print(f"{'policy':16}" + "".join(f"{f'{link} {budget}':>12}" for link, budget in cells))
    ratios: dict[str, list[float | None]] = {}
    for solver in swap_solvers():
        tried = (problem(graph, budget, link) for link, budget in cells)
        ratios[solver] = [ratio_of(solver, one, asked.time_limit) for one in tried]
        shown = ("           -" if r is None else f"{r:12.4f}" for r in ratios[solver])
        print(f"{solver:16}" + "".join(shown), flush=True)
    return list(_rows(name, cells, ratios))


def _rows(
    name: str, cells: list[tuple[str, str]], ratios: dict[str, list[float | None]]
) -> Iterator[dict[str, Any]]:
    for k, (link, budget) in enumerate(cells):
        others = {n: r[k] for n, r in ratios.items() if n != JOINT and r[k] is not None}
        best = min(others, key=lambda n: others[n] or 0.0, default=None)
        joint, limit = ratios[JOINT][k], None if best is None else others[best]
        wins = limit is None or (joint is not None and joint <= limit * (1 + _HAIR))
        if not wins:
            print(f"joint is slower than {best} at {link}, {budget}: {joint} and {limit}")
        yield {
            "graph": Path(name).stem,
            "link": link,
            "budget": budget,
            "ratios": {n: r[k] for n, r in ratios.items()},
            "best_other": best,
            "joint_wins": wins,
        }


def swap_solvers() -> list[str]:
    """Return the policies, then recomputation alone, then the joint plan."""
    names = [n for n in solver_entry_points() if "swap" in getattr(load_solver(n), "may", ())]
    return [*(n for n in names if n not in ("auto", JOINT)), *RECOMPUTING, JOINT]


def problem(graph: Graph, budget: str, link: str) -> Problem:
    """Return the problem with a share of the unplanned peak, and the link."""
    peak_bytes = simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes
    speed = parse_speed(link) if link.endswith("/s") else _speed(graph, float(link))
    tier = Tier(name="host", capacity_bytes=2**62, write_bytes_per_s=speed, read_bytes_per_s=speed)
    budget_bytes = parse_budget(budget, peak_bytes, 0)
    return Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier,))


def _speed(graph: Graph, share: float) -> int:
    """Return bytes a second of a link that carries a share of what is saved in one forward."""
    end = forward_end(graph)
    gaps = gaps_of(graph, range(len(graph.ops)))
    saved = {gap.tensor for gap in gaps if gap.out < end <= gap.back}
    saved_bytes = sum(graph.tensors[t].nbytes for t in saved)
    forward_ns = max(1, sum(op.time_ns for op in graph.ops[:end]))
    return max(1, round(share * saved_bytes / forward_ns * 1e9))


def ratio_of(name: str, asked: Problem, time_limit_s: float) -> float | None:
    """Return the time of the step over that of the unplanned one; None where nothing fits."""
    if name in RECOMPUTING:
        asked = replace(asked, tiers=())
    solution = load_solver(name).solve(asked, Limits(time_s=time_limit_s))
    if solution.schedule is None:
        return None
    verify(asked, solution.schedule)
    planned_ns = simulate(asked.graph, solution.schedule, asked.tiers).time_ns
    return planned_ns / max(1, asked.graph.time_ns)


if __name__ == "__main__":
    sys.exit(main())
