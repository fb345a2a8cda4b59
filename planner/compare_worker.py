"""The process in which `compare` runs one solver: a job on stdin, its row on stdout."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from memplan.graph_capture.graph import Graph
from memplan.planner.problem import Limits, Problem
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, load_solver
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row; any error of the solver is one, too."""
    began = time.monotonic()
    try:
        graph = Graph.from_json(job["graph"])
        tiers = tuple(Tier(**tier) for tier in job["tiers"])
        problem = Problem(graph=graph, budget_bytes=job["budget_bytes"], tiers=tiers)
        limits = Limits(time_s=job["time_s"], seed=job["seed"])
        solver = load_solver(job["solver"])
        began = time.monotonic()
        solution = solver.solve(problem, limits)
        seconds = time.monotonic() - began
        return _row(problem, solution) | {"seconds": seconds}
    except Exception as error:
        # Whatever it is belongs into the row: the comparison goes on without this solver.
        text = " ".join(str(error).split()) or "no text"
        return {
            "status": "failed",
            "seconds": time.monotonic() - began,
            "reason": f"{type(error).__name__}: {text}",
        }


def _row(problem: Problem, solution: Solution) -> dict[str, Any]:
    graph = problem.graph
    step_ns = max(1, graph.time_ns)
    row: dict[str, Any] = {
        "status": solution.status.value,
        "bound": max(0.0, solution.proven_bound_ns / step_ns - 1),
        "reason": solution.reason,
    }
    if solution.schedule is not None:
        verify(problem, solution.schedule)
        timeline = simulate(graph, solution.schedule, problem.tiers)
        row["overhead"] = timeline.time_ns / step_ns - 1
        row["peak_bytes"] = timeline.peak_bytes
    return row


def main() -> None:
    """Answer the job on stdin."""
    row = answer(json.loads(sys.stdin.read()))
    sys.stdout.write(f"\n{json.dumps(row)}\n")


if __name__ == "__main__":
    main()
