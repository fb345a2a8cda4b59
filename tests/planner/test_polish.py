from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.graph_capture.graph import Graph
from memplan.planner.polish import delay, polish
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from tests.graphs import random_graphs, unit_chain
from tests.small_graphs import HOURGLASS_RECOMPUTED, hourglass


def test_a_recomputation_moves_to_its_reader() -> None:
    # grow runs again before widen already, where big does not fit beside wide.
    early = (0, 1, 2, 0, 3, 4, 5)
    assert delay(hourglass(), early) == HOURGLASS_RECOMPUTED


def test_those_that_wait_for_each_other_stay_in_order() -> None:
    # Node 5 reads 1, and 1 reads 0; nothing reads the second run of 2.
    graph = unit_chain(3)
    assert delay(graph, (0, 1, 2, 3, 0, 1, 4, 2, 5, 6)) == (0, 1, 2, 3, 4, 0, 1, 5, 6)


def test_a_later_recomputation_makes_another_unnecessary() -> None:
    """4 units: in time for 5 only, the second run of 1 leaves room to keep 0 no longer."""
    graph, sequence = unit_chain(3), (0, 1, 2, 3, 0, 1, 4, 5, 0, 6)
    peak_bytes = simulate(graph, schedule_of(graph, sequence)).peak_bytes
    polished = polish(graph, sequence, peak_bytes)
    assert len(polished) < len(sequence)


@settings(deadline=None, max_examples=200)
@given(random_graphs(), st.data())
def test_it_stays_valid_within_the_budget_and_no_slower(graph: Graph, data: st.DataObject) -> None:
    sequence: list[int] = []
    for op in range(len(graph.ops)):
        again = data.draw(st.lists(st.integers(0, op), max_size=3))
        sequence += [i for i in again if i < op and graph.ops[i].recomputable]
        sequence.append(op)
    before = simulate(graph, schedule_of(graph, sequence))
    later = schedule_of(graph, delay(graph, sequence))
    verify(Problem(graph=graph, budget_bytes=10**9), later)
    polished = schedule_of(graph, polish(graph, sequence, before.peak_bytes))
    verify(Problem(graph=graph, budget_bytes=before.peak_bytes), polished)
    assert simulate(graph, polished).time_ns <= before.time_ns
