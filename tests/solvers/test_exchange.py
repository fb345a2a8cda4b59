from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.graph_capture.graph import Graph, Op, Tensor
from memplan.planner.problem import Problem
from memplan.planner.prune import prune
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.step_events import uses_of
from memplan.planner.verify import verify
from memplan.solvers._exchange import exchanged
from tests.graphs import random_graphs


def waiting() -> Graph:
    """Two tensors wait while `wide` is read; only one of them, 50 times as dear, need stay."""
    return Graph(
        tensors=tuple(
            Tensor(name=name, nbytes=nbytes)
            for name, nbytes in (("cheap", 2), ("dear", 2), ("wide", 2), ("x", 2), ("y", 0))
        ),
        ops=(
            Op(name="cheap", inputs=(), outputs=(0,), time_ns=1),
            Op(name="dear", inputs=(), outputs=(1,), time_ns=50),
            Op(name="wide", inputs=(), outputs=(2,), time_ns=1),
            Op(name="x", inputs=(2,), outputs=(3,), time_ns=1),
            Op(name="y", inputs=(0, 1, 3), outputs=(4,), time_ns=1),
        ),
    )


def test_the_cheap_one_is_made_again_instead_of_the_dear_one() -> None:
    graph, sequence = waiting(), (0, 1, 2, 3, 1, 4)
    verify(Problem(graph=graph, budget_bytes=6), schedule_of(graph, sequence))
    assert prune(graph, sequence, 6) == sequence
    assert exchanged(uses_of(graph), sequence, 6, math.inf) == (0, 1, 2, 3, 0, 4)


def test_no_time_leaves_it_as_it_is() -> None:
    sequence = (0, 1, 2, 3, 1, 4)
    assert exchanged(uses_of(waiting()), sequence, 6, -math.inf) == sequence


@settings(deadline=None, max_examples=200)
@given(random_graphs(), st.data())
def test_it_stays_valid_within_the_budget_and_no_slower(graph: Graph, data: st.DataObject) -> None:
    """Repeats are drawn at any place where the inputs were made before."""
    drawn: list[int] = []
    for op in range(len(graph.ops)):
        again = data.draw(st.lists(st.integers(0, op), max_size=3))
        drawn += [i for i in again if i < op and graph.ops[i].recomputable]
        drawn.append(op)
    budget_bytes = simulate(graph, schedule_of(graph, drawn)).peak_bytes
    sequence = prune(graph, drawn, budget_bytes)
    other = exchanged(uses_of(graph), sequence, budget_bytes, math.inf)
    verify(Problem(graph=graph, budget_bytes=budget_bytes), schedule_of(graph, other))
    time_ns = [sum(graph.ops[op].time_ns for op in order) for order in (sequence, other)]
    assert time_ns[1] < time_ns[0] or other == sequence
