from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.graph_capture.graph import Graph
from memplan.planner.checkpoints import forward_end
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.verify import verify
from memplan.solvers.programs._milp import Outcome
from memplan.solvers.programs._windowed_model import Decisions, WindowedModel
from memplan.solvers.programs._windows import split_later, window_of, window_starts
from memplan.solvers.programs.windowed import Windowed
from tests.graphs import chain, tight_problems, unet
from tests.small_graphs import HOURGLASS_RECOMPUTED, hourglass


def model_of(graph: Graph, budget_bytes: int, starts: list[int]) -> WindowedModel:
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    return WindowedModel(problem, Decisions(problem, starts, starts, 1))


def test_hourglass_by_hand() -> None:
    """One window for grow to narrow, one for finish: there grow may run again."""
    model = model_of(hourglass(), 104, [0, 5])
    result = model.program.solve(10.0)
    assert model.sequence(result.values) == HOURGLASS_RECOMPUTED
    assert model.scale.bound_ns(result.bound) == 10


def test_no_window_begins_where_it_would_have_to() -> None:
    # finish is in the window of widen, and grow cannot run between them.
    assert model_of(hourglass(), 104, [0, 3]).program.solve(10.0).outcome is Outcome.INFEASIBLE


def test_the_start_of_a_sequence() -> None:
    model = model_of(hourglass(), 104, [0, 5])
    start = model.start(HOURGLASS_RECOMPUTED)
    assert start is not None
    assert sum(start.values()) == 1.0
    # squash runs again where nothing reads what it makes.
    assert model.start((0, 1, 2, 3, 4, 1, 0, 5)) is None


@settings(deadline=None, max_examples=200)
@given(tight_problems(), st.data())
def test_what_fits_the_model_fits_the_budget(problem: Problem, data: st.DataObject) -> None:
    """With any windows; and the model's cost is that of its sequence."""
    graph = problem.graph
    starts = {0, *data.draw(st.sets(st.integers(1, len(graph.ops) - 1), max_size=6))}
    ahead = data.draw(st.integers(0, 3))
    decisions = Decisions(problem, sorted(starts), sorted(starts), ahead)
    model = WindowedModel(problem, decisions)
    result = model.program.solve(10.0)
    if not result.values:
        return
    sequence = model.sequence(result.values)
    verify(problem, schedule_of(graph, sequence))
    extra_ns = sum(graph.ops[i].time_ns for i in sequence) - graph.time_ns
    if result.outcome is Outcome.OPTIMAL:
        assert model.scale.bound_ns(result.bound) == extra_ns


@settings(deadline=None, max_examples=100)
@given(tight_problems())
def test_what_it_returns_is_valid(problem: Problem) -> None:
    solution = Windowed().solve(problem, Limits(time_s=5))
    if solution.schedule is not None:
        verify(problem, solution.schedule)


@pytest.mark.parametrize(("graph", "budget_bytes"), [(chain(12, nbytes=100), 533), (unet(3), 160)])
def test_it_finds_schedules_near_the_limit(graph: Graph, budget_bytes: int) -> None:
    # The limits are 400 and 144 bytes.
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    solution = Windowed(start=()).solve(problem, Limits(time_s=20))
    assert solution.status is Status.FEASIBLE
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    assert solution.model_bound_ns is not None
    assert solution.model_bound_ns >= graph.time_ns


def test_windows_cover_the_order() -> None:
    graph = unet(4)
    starts = window_starts(graph)
    end = forward_end(graph)
    assert starts[0] == 0
    assert end in starts
    windows = window_of(starts, len(graph.ops))
    assert [windows.index(w) for w in range(len(starts))] == starts
    finer = split_later(starts, end, len(graph.ops), 1000)
    assert finer == sorted({*(s for s in starts if s < end), *range(end, len(graph.ops))})


def test_backward_windows_follow_the_cuts_of_the_forward_ops() -> None:
    # The chain has 1 byte alive everywhere, so only its ends are cut.
    graph = chain(30)
    assert window_starts(graph) == [0, forward_end(graph)]


def test_one_replay_schedule_can_start_it() -> None:
    graph = chain(10)
    problem = Problem(graph=graph, budget_bytes=7)
    alone = Windowed(start=()).solve(problem, Limits(time_s=10))
    assert alone.schedule is not None
    again = Windowed(start=alone.schedule).solve(problem, Limits(time_s=10))
    assert again.schedule is not None
    assert simulate(graph, again.schedule).time_ns <= simulate(graph, alone.schedule).time_ns
