from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.graph_capture.graph import Graph
from memplan.planner.problem import Problem
from memplan.planner.prune import prune
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from tests.graphs import random_graphs, unit_chain


def peak_bytes(graph: Graph, sequence: tuple[int, ...]) -> int:
    return simulate(graph, schedule_of(graph, sequence)).peak_bytes


def test_everything_goes_when_there_is_room() -> None:
    graph = unit_chain(3)
    assert prune(graph, (0, 1, 2, 3, 4, 0, 1, 5, 0, 6), 100) == tuple(range(7))


def test_what_the_budget_needs_stays() -> None:
    # Node 4 reads 2 and 3, 5 reads 1 and 4, 6 reads 0 and 5: with 3 units nothing else fits
    # beside them. With 4, either 0 or 1 can be kept at node 4, and 1 is worth two runs.
    graph, sequence = unit_chain(3), (0, 1, 2, 3, 4, 0, 1, 5, 0, 6)
    assert peak_bytes(graph, sequence) == 3
    assert prune(graph, sequence, 3) == sequence
    assert prune(graph, sequence, 4) == (0, 1, 2, 3, 4, 5, 0, 6)


@settings(deadline=None, max_examples=200)
@given(random_graphs(), st.data())
def test_the_result_is_valid_and_cannot_be_pruned_further(
    graph: Graph, data: st.DataObject
) -> None:
    """Any sequence that keeps its inputs: repeats are drawn at any place."""
    sequence: list[int] = []
    for op in range(len(graph.ops)):
        again = data.draw(st.lists(st.integers(0, op), max_size=3))
        sequence += [i for i in again if i < op and graph.ops[i].recomputable]
        sequence.append(op)
    before = peak_bytes(graph, tuple(sequence))
    for budget_bytes in (before, before + 2):
        pruned = prune(graph, sequence, budget_bytes)
        verify(Problem(graph=graph, budget_bytes=budget_bytes), schedule_of(graph, pruned))
        for j, op in enumerate(pruned):
            if op in pruned[:j]:
                shorter = pruned[:j] + pruned[j + 1 :]
                assert peak_bytes(graph, shorter) > budget_bytes
