from __future__ import annotations

from dataclasses import replace

from memplan.graph_capture.graph import Graph, Kind, Op, Tensor
from memplan.planner.schedule import Compute, Drop, Schedule, schedule_of
from memplan.planner.simulate import resident_at, simulate
from tests.small_graphs import HOURGLASS_RECOMPUTED, chain, diamond, hourglass, two_outputs

IN_ORDER: Schedule = (Compute(0), Compute(1), Drop(1), Compute(2), Drop(2))


def test_chain_keeps_at_most_two_neighbours_and_the_input() -> None:
    timeline = simulate(chain(), IN_ORDER)
    #                              f: xa  g: xab  drop a  h: xby  drop b
    assert timeline.live_bytes == (2, 3, 3, 3, 3)
    assert (timeline.peak_bytes, timeline.peak_step, timeline.time_ns) == (3, 1, 3)


def test_nothing_dropped_adds_up() -> None:
    timeline = simulate(chain(), (Compute(0), Compute(1), Compute(2)))
    assert timeline.live_bytes == (2, 3, 4)


def test_an_empty_schedule_holds_what_is_given() -> None:
    timeline = simulate(chain(), ())
    assert (timeline.peak_bytes, timeline.peak_step, timeline.time_ns) == (1, -1, 0)


def test_diamond_peaks_at_the_join() -> None:
    timeline = simulate(diamond(), schedule_of(diamond(), range(4)))
    #                              split left right drop a  join drop b, c
    assert timeline.live_bytes == (3, 6, 10, 10, 13, 13, 10)
    assert (timeline.peak_bytes, timeline.peak_step, timeline.time_ns) == (13, 4, 10)


def test_a_second_instance_counts_while_it_is_written() -> None:
    # q is still there when the op that makes p and q runs again: for that moment it is
    # there twice, x + q + s + (p + q) = 52 bytes; afterwards once, x + p + q + s + y = 33.
    again = (Compute(0), Compute(1), Drop(1), Compute(0), Compute(2))
    timeline = simulate(two_outputs(), again)
    assert timeline.live_bytes == (31, 32, 32, 52, 33)
    assert timeline.time_ns == 4 + 2 + 4 + 1


def test_dropping_the_other_output_first_avoids_the_second_instance() -> None:
    timeline = simulate(two_outputs(), schedule_of(two_outputs(), (0, 1, 0, 2)))
    # pair, drop q (no reader before it is made again), first, drop p, pair, last, drops
    assert timeline.live_bytes[:6] == (31, 31, 12, 12, 32, 33)
    assert timeline.peak_bytes == 33


def test_workspace_is_there_only_while_its_op_runs() -> None:
    graph = chain()
    middle = replace(graph.ops[1], workspace_bytes=50)
    graph = replace(graph, ops=(graph.ops[0], middle, graph.ops[2]))
    assert simulate(graph, IN_ORDER).live_bytes == (2, 53, 3, 3, 3)


def test_what_is_given_counts_before_the_first_step() -> None:
    weight = Tensor(name="w", nbytes=1000, kind=Kind.PARAM)
    graph = Graph(tensors=(*chain().tensors, weight), ops=chain().ops)
    assert graph.given_bytes == 1001
    assert simulate(graph, ()).peak_bytes == 1001
    assert simulate(graph, IN_ORDER).peak_bytes == 1003


def test_recomputing_trades_time_for_bytes() -> None:
    graph = hourglass()
    kept = simulate(graph, schedule_of(graph, range(6)))
    again = simulate(graph, schedule_of(graph, HOURGLASS_RECOMPUTED))
    assert (kept.peak_bytes, kept.time_ns) == (153, 15)
    assert (again.peak_bytes, again.time_ns) == (104, 25)


def test_resident_at_names_the_tensors_of_a_step() -> None:
    assert resident_at(chain(), IN_ORDER, 0) == (0, 1)
    assert resident_at(chain(), IN_ORDER, 1) == (0, 1, 2)
    assert resident_at(chain(), IN_ORDER, 2) == (0, 1, 2), "a is there while it is dropped"
    assert resident_at(chain(), IN_ORDER, 3) == (0, 2, 3)


def test_live_bytes_is_the_sum_of_the_resident_tensors() -> None:
    graph = hourglass()
    schedule = schedule_of(graph, HOURGLASS_RECOMPUTED)
    for step, live_bytes in enumerate(simulate(graph, schedule).live_bytes):
        resident = resident_at(graph, schedule, step)
        assert live_bytes == sum(graph.tensors[t].nbytes for t in resident)


def test_an_op_without_outputs_counts_its_workspace() -> None:
    probe = Op(name="probe", inputs=(0,), outputs=(), workspace_bytes=9)
    graph = Graph(tensors=(Tensor(name="x", nbytes=1, kind=Kind.INPUT),), ops=(probe,))
    assert simulate(graph, (Compute(0),)).live_bytes == (10,)
