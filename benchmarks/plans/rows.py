"""Solves one problem and reports what `simulate` and `verify` say about the answer."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.plans.published import peak_bytes
from memplan.graph_capture.graph import Graph
from memplan.planner.minimum import minimum_budget
from memplan.planner.problem import Limits, Problem
from memplan.planner.simulate import simulate
from memplan.planner.solver import load_solver
from memplan.planner.verify import verify

Row = dict[str, Any]


def plan(
    graph: Graph,
    budget_bytes: int,
    known: float | None,
    solver: str,
    time_s: float,
    gap: float = 0.003,
) -> Row:
    """Solve one problem; times are shares of the step without recomputation."""
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    before_bytes = _most_bytes()
    cpu_s, began = time.process_time(), time.monotonic()
    solution = load_solver(solver).solve(problem, Limits(time_s=time_s, gap=gap))
    row: Row = {
        "ops": len(graph.ops),
        "budget_bytes": budget_bytes,
        "budget": budget_bytes / max(1, peak_bytes(graph)),
        "status": solution.status.value,
        "known": known,
        "proven": solution.proven_bound_ns / graph.time_ns - 1,
        "model": None
        if solution.model_bound_ns is None
        else solution.model_bound_ns / graph.time_ns - 1,
        "minimum_bytes": solution.minimum_bytes,
        "first_seconds": solution.stats.get("first_s"),
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - cpu_s,
        "time_limit": time_s,
        "asked_gap": gap,
        "clock": "cpu" if time.monotonic is time.process_time else "wall",
        "solver_bytes": _most_bytes() - before_bytes,
        "stages": dict(solution.stats),
    }
    if solution.schedule is not None:
        verify(problem, solution.schedule)
        timeline = simulate(graph, solution.schedule)
        row["peak_bytes"], row["time_ns"] = timeline.peak_bytes, timeline.time_ns
        row["extra"] = timeline.time_ns / graph.time_ns - 1
        row["gap"] = timeline.time_ns / solution.proven_bound_ns - 1
    return row


def least(graph: Graph, time_s: float) -> Row:
    """Return the smallest budget that a schedule is found for, and the proven limit."""
    found = minimum_budget(graph, limits=Limits(time_s=time_s))
    assert simulate(graph, found.schedule).peak_bytes == found.feasible_bytes
    return {"least_bytes": found.feasible_bytes, "limit_bytes": found.limit_bytes}


def in_own_process(task: str, graph: Graph, *arguments: Any, clock: str = "wall") -> Row:
    """Call `plan` or `least` where its peak memory is its own; see `count_cpu_seconds`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_answer, args=(theirs, task, graph.to_json(), arguments, clock))
    child.start()
    theirs.close()
    try:
        row: Row = ours.recv()
    except EOFError:
        row = {"status": "crashed"}
    child.join()
    return row


def _answer(pipe: Any, task: str, text: str, arguments: tuple[Any, ...], clock: str) -> None:
    if clock == "cpu":
        count_cpu_seconds()
    calls: dict[str, Callable[..., Row]] = {"plan": plan, "least": least}
    pipe.send(calls[task](Graph.from_json(text), *arguments))


def count_cpu_seconds() -> None:
    """Let this process measure its time limits by its own CPU time.

    On a machine that others use at the same time, this is closer to what the solver takes on an
    idle one. HiGHS has no such clock: it gets as much more time as the CPU is shared.
    """
    from memplan.solvers.programs import _linear_program

    wall_s, began_s = time.monotonic, time.monotonic()
    program: Any = _linear_program.LinearProgram
    prepare = program._highs

    def prepare_shared(self: Any, time_s: float, seed: int, threads: int) -> Any:
        shared = (wall_s() - began_s) / max(0.1, time.process_time())
        return prepare(self, time_s * max(1.0, shared), seed, threads)

    program._highs = prepare_shared
    vars(time)["monotonic"] = time.process_time


def _most_bytes() -> int:
    """Return the most memory that this process ever had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
