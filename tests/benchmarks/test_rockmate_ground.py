"""The comparison on Rockmate's ground."""

from benchmarks import rockmate_ground
from memplan.graph_capture.graph import Graph, Kind, Op, Tensor
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from tests.small_graphs import hourglass


def test_gradients_are_held_from_the_start_and_made_as_temporaries() -> None:
    graph = Graph(
        tensors=(
            Tensor(name="w", nbytes=100, kind=Kind.PARAM),
            Tensor(name="x", nbytes=10),
            Tensor(name="w_grad", nbytes=100, kind=Kind.GRADIENT),
        ),
        ops=(
            Op(name="f", inputs=(0,), outputs=(1,), time_ns=1),
            Op(name="b", inputs=(1,), outputs=(2,), time_ns=1),
        ),
    )
    held = rockmate_ground._with_gradients_held(graph)
    assert simulate(graph, schedule_of(graph, range(2))).peak_bytes == 210
    assert simulate(held, schedule_of(held, range(2))).peak_bytes == 310


def test_a_row_by_hand() -> None:
    # At 114 of 153 bytes `grow` runs again: 10 ns beside 15. Half of them is below the limit.
    row = rockmate_ground._row(hourglass(), 75, 5.0)
    assert (row["status"], row["extra"], row["proven"]) == ("optimal", 25 / 15 - 1, 25 / 15 - 1)
    below = rockmate_ground._row(hourglass(), 50, 5.0)
    assert below["status"] == "infeasible"
    assert "extra" not in below
