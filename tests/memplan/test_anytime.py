"""What a user sees and gets while a solver runs: progress, Ctrl-C, and the same plan each time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.graph_capture.graph_files import read_graph
from memplan.planner.pipeline import make_plan
from memplan.planner.problem import Limits, Problem, Standing
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import load_solver
from memplan.planner.verify import verify
from memplan.progress import described
from tests.graphs import unet, unit_chain


def test_a_line_says_how_far_the_solver_is() -> None:
    first = Standing(stage="greedy", step_ns=100, best_ns=None, bound_ns=100)
    assert (first.gap, described(first)) == (None, "greedy: no schedule yet")
    later = Standing(stage="windowed", step_ns=100, best_ns=120, bound_ns=110)
    assert described(later) == "windowed: extra time 20.00%, bound 10.00%, gap 9.09%"
    nothing = Standing(stage="greedy", step_ns=0, best_ns=0, bound_ns=0)
    assert described(nothing) == "greedy: extra time -100.00%, bound -100.00%"


@pytest.mark.parametrize("name", ["auto", "greedy"])
def test_who_watches_sees_better_and_better_schedules(name: str) -> None:
    seen: list[Standing] = []
    problem = Problem(graph=unit_chain(12), budget_bytes=4)
    limits = Limits(time_s=30, watch=seen.append)
    solution = load_solver(name).solve(problem, limits)
    assert solution.schedule is not None
    best = [now.best_ns for now in seen if now.best_ns is not None]
    assert best == sorted(best, reverse=True)
    assert best[-1] <= best[0]
    assert all(now.step_ns == 25 for now in seen)
    assert all(now.best_ns is None or now.bound_ns <= now.best_ns for now in seen)
    if name == "auto":
        assert {"relaxation", "greedy"} <= {now.stage for now in seen}
        assert best[-1] == simulate(problem.graph, solution.schedule).time_ns


def test_watching_changes_nothing() -> None:
    assert Limits(watch=print) == Limits()
    graph = unet(3)
    watched = make_plan(graph, 160, limits=Limits(watch=lambda now: None))
    assert watched.to_json(timing=False) == make_plan(graph, 160).to_json(timing=False)


def test_the_solver_tells_how_much_memory_it_took() -> None:
    problem = Problem(graph=unit_chain(12), budget_bytes=4)
    solution = load_solver("auto").solve(problem, Limits(time_s=10))
    assert solution.stats["memory_bytes"] >= 0
    plan = make_plan(problem.graph, 4, solver="greedy")
    timing = json.loads(plan.to_json())["timing"]
    assert timing["solver_memory_bytes"] == plan.solver_memory_bytes >= 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of its own")
def test_ctrl_c_ends_with_the_best_plan_so_far(tmp_path: Path) -> None:
    """The terminal shows incumbent, bound and gap; from then on a signal yields a plan."""
    path = tmp_path / "graph.json"
    path.write_text(unit_chain(60).to_json())
    terminal, inner = os.openpty()
    command = ["-m", "memplan", "solve", str(path), "--budget", "12", "--time-limit", "500"]
    process = subprocess.Popen(
        [sys.executable, *command, "--json"],
        stdout=subprocess.PIPE,
        stderr=inner,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(inner)
    shown = b""
    while b"gap" not in shown:
        shown += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    os.close(terminal)
    assert b"extra time" in shown
    assert b"bound" in shown
    assert process.returncode == 0
    result = json.loads(out)
    # It may have ended just before the signal came.
    assert result["status"] in ("feasible", "optimal")
    assert result["seconds"] < 400
    graph = read_graph(path)
    schedule = schedule_of(graph, result["sequence"])
    verify(Problem(graph=graph, budget_bytes=12), schedule)
    assert simulate(graph, schedule).time_ns == result["cost"]


DIGESTS = """
import hashlib
from memplan.planner.pipeline import make_plan
from memplan.planner.problem import Limits
from tests.graphs import unet, unit_chain
from tests.solvers.test_reorder import side_by_side

QUESTIONS = (
    ("auto", unet(3), 160),
    ("auto", unit_chain(6), 5),
    ("greedy", unit_chain(12), 5),
    ("checkmate", unit_chain(6), 5),
    ("windowed", unet(2), 80),
    ("reorder", side_by_side(6), 14),
)
for solver, graph, budget in QUESTIONS:
    plan = make_plan(graph, budget, solver=solver, limits=Limits(time_s=900))
    print(solver, hashlib.sha256(plan.to_json(timing=False).encode()).hexdigest())
"""


def test_the_same_question_has_the_same_answer_in_every_process() -> None:
    """Byte for byte, whatever order sets and dicts of strings have."""
    answers = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert answers[0] == answers[1]
    assert answers[0].count("\n") == 6
