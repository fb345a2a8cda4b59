from __future__ import annotations

from memplan.graph_capture.graph import Graph, Kind, Op, Tensor
from memplan.planner.problem import Problem
from memplan.planner.schedule import Compute, Drop, schedule_of, sequence_of
from memplan.planner.verify import verify
from tests.small_graphs import HOURGLASS_RECOMPUTED, chain, diamond, hourglass, two_outputs


def test_each_tensor_is_dropped_right_after_its_last_reader() -> None:
    assert schedule_of(chain(), range(3)) == (
        Compute(0),
        Compute(1),
        Drop(1),
        Compute(2),
        Drop(2),
    )


def test_a_tensor_with_two_readers_waits_for_the_second() -> None:
    steps = schedule_of(diamond(), range(4))
    assert steps.index(Drop(1)) == steps.index(Compute(2)) + 1


def test_an_instance_nobody_reads_is_dropped_at_once() -> None:
    # q of the first run is overwritten by the second run before anybody reads it
    assert schedule_of(two_outputs(), (0, 1, 0, 2)) == (
        Compute(0),
        Drop(2),
        Compute(1),
        Drop(1),
        Compute(0),
        Compute(2),
        Drop(1),
        Drop(2),
        Drop(3),
    )


def test_an_unread_temporary_is_dropped_after_its_producer() -> None:
    tensors = (Tensor(name="x", nbytes=1, kind=Kind.INPUT), Tensor(name="t", nbytes=1))
    graph = Graph(tensors=tensors, ops=(Op(name="f", inputs=(0,), outputs=(1,)),))
    assert schedule_of(graph, (0,)) == (Compute(0), Drop(1))


def test_pinned_tensors_are_never_dropped() -> None:
    graph = hourglass()
    pinned = {t for t, tensor in enumerate(graph.tensors) if tensor.pinned}
    assert pinned == {0, 3, 6}
    steps = schedule_of(graph, HOURGLASS_RECOMPUTED)
    assert pinned.isdisjoint(step.tensor for step in steps if isinstance(step, Drop))


def test_sequence_of_is_the_inverse_of_schedule_of() -> None:
    assert sequence_of(schedule_of(hourglass(), HOURGLASS_RECOMPUTED)) == HOURGLASS_RECOMPUTED
    assert sequence_of(()) == ()


def test_the_result_is_accepted_by_the_judge_to_the_byte() -> None:
    graph = hourglass()
    verify(Problem(graph=graph, budget_bytes=104), schedule_of(graph, iter(HOURGLASS_RECOMPUTED)))
