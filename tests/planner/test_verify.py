"""Every rule of the judge is broken once, and named; every valid schedule is let through."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import InvalidSchedule
from memplan.graph_capture.graph import Graph
from memplan.planner.problem import Problem
from memplan.planner.schedule import Compute, Drop, Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from tests.small_graphs import HOURGLASS_RECOMPUTED, chain, diamond, hourglass, two_outputs

PLENTY = 10_000


def refusal(graph: Graph, schedule: Schedule, budget_bytes: int = PLENTY) -> tuple[int, str]:
    """Return the step at which `schedule` is refused, and the rule."""
    with pytest.raises(InvalidSchedule) as caught:
        verify(Problem(graph=graph, budget_bytes=budget_bytes), schedule)
    return caught.value.step, caught.value.rule


@pytest.mark.parametrize("op", [3, 99, -1])
def test_rule_1_there_is_no_such_op(op: int) -> None:
    assert refusal(chain(), (Compute(0), Compute(op))) == (1, f"there is no op {op}")


@pytest.mark.parametrize("tensor", [4, -1])
def test_rule_1_there_is_no_such_tensor(tensor: int) -> None:
    assert refusal(chain(), (Drop(tensor),)) == (0, f"there is no tensor {tensor}")


def test_rule_2_an_input_is_not_made_yet() -> None:
    step, rule = refusal(chain(), (Compute(1),))
    assert (step, rule) == (0, "'g' reads ['a'], not on the device")


def test_rule_2_an_input_was_dropped() -> None:
    step, rule = refusal(chain(), (Compute(0), Drop(1), Compute(1)))
    assert (step, rule) == (2, "'g' reads ['a'], not on the device")


def test_rule_3_a_random_draw_runs_once() -> None:
    graph = hourglass()
    once = replace(graph.ops[0], recomputable=False)
    graph = replace(graph, ops=(once, *graph.ops[1:]))
    step, rule = refusal(graph, schedule_of(graph, HOURGLASS_RECOMPUTED))
    # grow, squash, drop big, lose, widen, drop small, narrow, drop wide, grow again
    assert (step, rule) == (8, "'grow' must not run twice")


def in_order_diamond() -> Graph:
    graph = diamond()
    ops = tuple(replace(op, in_order=op.name in {"left", "right"}) for op in graph.ops)
    return replace(graph, ops=ops)


def test_rule_4_ordered_ops_keep_their_order() -> None:
    step, rule = refusal(in_order_diamond(), (Compute(0), Compute(2), Compute(1), Compute(3)))
    assert step == 1
    assert rule == "'right' runs before an op whose turn comes first"


def test_rule_4_is_only_about_first_runs() -> None:
    sequence = (0, 1, 2, 1, 3)
    verify(Problem(graph=in_order_diamond(), budget_bytes=PLENTY), tuple(map(Compute, sequence)))


def test_other_ops_may_change_places() -> None:
    verify(Problem(graph=diamond(), budget_bytes=PLENTY), schedule_of(diamond(), (0, 2, 1, 3)))


def test_rule_5_the_forward_is_over_once_the_backward_starts() -> None:
    # widen needs only small; lose is a forward op and has not run yet
    step, rule = refusal(hourglass(), tuple(map(Compute, (0, 1, 3, 2, 4, 5))))
    assert (step, rule) == (3, "'lose' belongs to the forward phase, which is over")


def test_rule_6_a_tensor_is_dropped_twice() -> None:
    step, rule = refusal(chain(), (Compute(0), Compute(1), Drop(1), Drop(1)))
    assert (step, rule) == (3, "'a' is dropped but not on the device")


@pytest.mark.parametrize(("tensor", "name"), [(0, "x"), (3, "y")])
def test_rule_6_inputs_and_outputs_are_pinned(tensor: int, name: str) -> None:
    steps: Schedule = (*map(Compute, range(3)), Drop(tensor))
    assert refusal(chain(), steps) == (3, f"{name!r} is pinned and cannot be dropped")


def test_rule_7_one_byte_over_the_budget() -> None:
    schedule = schedule_of(chain(), range(3))
    verify(Problem(graph=chain(), budget_bytes=3), schedule)
    assert refusal(chain(), schedule, 2) == (1, "3 bytes in use, 1 over the budget")


def test_rule_7_counts_the_workspace() -> None:
    graph = chain()
    graph = replace(graph, ops=(*graph.ops[:2], replace(graph.ops[2], workspace_bytes=5)))
    schedule = schedule_of(graph, range(3))
    verify(Problem(graph=graph, budget_bytes=8), schedule)
    assert refusal(graph, schedule, 7) == (3, "8 bytes in use, 1 over the budget")


def test_rule_7_counts_a_second_instance() -> None:
    again = (Compute(0), Compute(1), Drop(1), Compute(0), Compute(2))
    verify(Problem(graph=two_outputs(), budget_bytes=52), again)
    assert refusal(two_outputs(), again, 51) == (3, "52 bytes in use, 1 over the budget")


def test_rule_8_an_op_never_ran() -> None:
    assert refusal(chain(), (Compute(0), Compute(1))) == (2, "never ran h")


def test_rule_8_an_empty_schedule_runs_nothing() -> None:
    assert refusal(chain(), ()) == (0, "never ran f, g, h")


@given(st.permutations(range(4)), st.lists(st.integers(0, 3), max_size=3))
def test_both_judges_see_the_same_peak(order: list[int], again: list[int]) -> None:
    graph = diamond()
    schedule = schedule_of(graph, [*order, *again])
    try:
        verify(Problem(graph=graph, budget_bytes=PLENTY), schedule)
    except InvalidSchedule:
        return
    peak_bytes = simulate(graph, schedule).peak_bytes
    verify(Problem(graph=graph, budget_bytes=peak_bytes), schedule)
    _, rule = refusal(graph, schedule, peak_bytes - 1)
    assert rule == f"{peak_bytes} bytes in use, 1 over the budget"
