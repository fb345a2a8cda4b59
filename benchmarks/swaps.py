"""Every swap policy beside recomputation and the joint plan, by the simulator.

Run: python -m benchmarks.swaps GRAPH.json [--budgets 70 50 35] [--links 0.2 1.0] [--time-limit 20]

A link is given as the share of all saved bytes that it carries during one forward pass, so that
it means the same for every graph: 0.2 is about what a training GPU has on PCIe. Figures are the
time of the step over that of the unplanned one; a policy that does not fit has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

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


def main(argv: Sequence[str] | None = None) -> None:
    """Print one table for each graph."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("--budgets", nargs="+", type=int, default=[70, 50, 35])
    parser.add_argument("--links", nargs="+", type=float, default=[0.2, 1.0])
    parser.add_argument("--time-limit", type=float, default=20.0)
    asked = parser.parse_args(argv)
    for path in asked.graphs:
        graph = read_graph(path)
        columns = [(link, budget) for link in asked.links for budget in asked.budgets]
        print(f"{path.stem}, {len(graph.ops)} ops")
        print(f"{'policy':16}" + "".join(f"{link:>6g}/{budget}%" for link, budget in columns))
        for name in swap_solvers():
            ratios = [
                ratio_of(name, problem(graph, budget, link), asked.time_limit)
                for link, budget in columns
            ]
            cells = "".join("        -" if r is None else f"{r:9.3f}" for r in ratios)
            print(f"{name:16}{cells}", flush=True)


def swap_solvers() -> list[str]:
    """Return the policies, then recomputation alone, then the joint plan."""
    names = [n for n in solver_entry_points() if "swap" in getattr(load_solver(n), "may", ())]
    return [*(n for n in names if n not in ("auto", "joint")), "greedy", "joint"]


def problem(graph: Graph, budget_percent: int, link: float) -> Problem:
    """Return the problem with a share of the freeable bytes at the peak, and the link."""
    order = range(len(graph.ops))
    peak_bytes = simulate(graph, schedule_of(graph, order)).peak_bytes
    above_bytes = peak_bytes - graph.given_bytes
    end = forward_end(graph)
    saved = {gap.tensor for gap in gaps_of(graph, order) if gap.out < end <= gap.back}
    saved_bytes = sum(graph.tensors[t].nbytes for t in saved)
    forward_ns = max(1, sum(op.time_ns for op in graph.ops[:end]))
    speed = max(1, round(link * saved_bytes / forward_ns * 1e9))
    tier = Tier(name="host", capacity_bytes=2**62, write_bytes_per_s=speed, read_bytes_per_s=speed)
    budget_bytes = graph.given_bytes + above_bytes * budget_percent // 100
    return Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier,))


def ratio_of(name: str, asked: Problem, time_limit_s: float) -> float | None:
    """Return the time of the step over that of the unplanned one; None where nothing fits."""
    solution = load_solver(name).solve(asked, Limits(time_s=time_limit_s))
    if solution.schedule is None:
        return None
    verify(asked, solution.schedule)
    planned_ns = simulate(asked.graph, solution.schedule, asked.tiers).time_ns
    return planned_ns / max(1, asked.graph.time_ns)


if __name__ == "__main__":
    main()
