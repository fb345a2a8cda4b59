from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.batch_line import on_line
from memplan.planner.max_batch import BatchSearch, largest
from memplan.planner.problem import Limits
from memplan.planner.solver import load_solver


@given(st.integers(0, 5000), st.integers(-10, 20000), st.data())
def test_the_largest_is_found_from_any_guess(answer: int, guess: int, data: st.DataObject) -> None:
    least = data.draw(st.integers(0, answer))
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= answer

    assert largest(holds, guess, least) == answer
    assert all(number > least for number in asked)
    assert len(set(asked)) == len(asked)


def test_a_good_guess_takes_two_questions() -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= 100

    assert largest(holds, 100) == 100
    assert asked == [100, 101]


def chain(batch: int) -> Graph:
    """Four activations of `batch` bytes, read backwards, and 10 bytes of parameters.

    With nothing recomputed all four are there at the turn, and one gradient. Each may be made
    again from the one before it.
    """
    tensors = [Tensor(name="w", nbytes=10, kind=Kind.PARAM)]
    ops: list[Op] = []
    for i in range(4):
        tensors.append(Tensor(name=f"a{i}", nbytes=batch))
        ops.append(Op(name=f"f{i}", inputs=(i,), outputs=(i + 1,), time_ns=10))
    grad: tuple[int, ...] = ()
    for i in reversed(range(4)):
        tensors.append(Tensor(name=f"g{i}", nbytes=batch, kind=Kind.TEMPORARY))
        inputs = (i + 1, *grad)
        outputs = (len(tensors) - 1,)
        backward = Phase.BACKWARD
        ops.append(Op(name=f"b{i}", inputs=inputs, outputs=outputs, phase=backward, time_ns=20))
        grad = outputs
    return Graph(ops=tuple(ops), tensors=tuple(tensors))


@pytest.fixture
def search_within() -> Callable[..., BatchSearch]:
    def make(budget_bytes: int, most_extra_time: float = float("inf")) -> BatchSearch:
        return BatchSearch(
            capture=chain,
            budget_bytes=budget_bytes,
            solver=load_solver("exhaustive"),
            limits=Limits(time_s=10),
            most_extra_time=most_extra_time,
        )

    return make


def test_unplanned_and_planned_by_hand(search_within: Callable[..., BatchSearch]) -> None:
    # Unplanned: four activations and a gradient. Planned: two activations while one is made again
    # from the other, and a gradient.
    search = search_within(10 + 500)
    assert search.largest_unplanned(2) == 100
    assert search.fits_planned(125)
    planned = search.largest_planned(100)
    assert 166 - 166 // 50 <= planned <= 166
    assert len(search.tried) == len(set(search.tried)) < 8


def test_a_prediction_is_the_captured_step_where_all_is_on_a_line() -> None:
    assert on_line(chain(10), chain(20), (10, 20), 33) == chain(33)
    other = chain(20)
    different = replace(other, ops=(replace(other.ops[0], target="other"), *other.ops[1:]))
    assert on_line(chain(10), different, (10, 20), 33) is None


def test_no_extra_time_means_no_more_than_unplanned(
    search_within: Callable[..., BatchSearch],
) -> None:
    search = search_within(10 + 500, most_extra_time=0.0)
    assert search.largest_planned(search.largest_unplanned(2)) == 100


def test_nothing_fits(search_within: Callable[..., BatchSearch]) -> None:
    search = search_within(11)
    assert search.largest_unplanned(2) == 0
    assert search.largest_planned(0) == 0
