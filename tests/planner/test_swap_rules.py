"""Every rule of the judge about transfers is broken once, and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memplan.errors import InvalidSchedule
from memplan.planner.problem import Problem
from memplan.planner.schedule import Compute, Drop, Prefetch, Schedule, Step, SwapOut, Wait
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from tests.planner.test_swap_timelines import AWAY, BIG, tier
from tests.small_graphs import hourglass

C0, C1, C2 = Compute(0), Compute(1), Compute(2)
OUT, IN, WAIT = SwapOut(BIG), Prefetch(BIG), Wait(BIG)


def refusal(
    *steps: Step, budget_bytes: int = 10_000, capacity_bytes: int = 1000
) -> tuple[int, str]:
    """Return the step at which the schedule is refused, and the rule."""
    place = replace(tier(), capacity_bytes=capacity_bytes)
    problem = Problem(graph=hourglass(), budget_bytes=budget_bytes, tiers=(place,))
    with pytest.raises(InvalidSchedule) as caught:
        verify(problem, steps)
    return caught.value.step, caught.value.rule


def test_the_schedule_of_the_timelines_is_valid_at_its_peak_and_not_below() -> None:
    peak_bytes = simulate(hourglass(), AWAY, (tier(),)).peak_bytes
    verify(Problem(graph=hourglass(), budget_bytes=peak_bytes, tiers=(tier(),)), AWAY)
    assert refusal(*AWAY, budget_bytes=peak_bytes - 1) == (
        8,
        "153 bytes in use, 1 over the budget",
    )


def test_the_budget_counts_the_buffers() -> None:
    place = tier(buffer_bytes=10)
    verify(Problem(graph=hourglass(), budget_bytes=163, tiers=(place,)), AWAY)
    with pytest.raises(InvalidSchedule, match="163 bytes in use, 1 over"):
        verify(Problem(graph=hourglass(), budget_bytes=162, tiers=(place,)), AWAY)


def test_rule_1_there_is_no_such_tier_or_tensor() -> None:
    assert refusal(C0, SwapOut(BIG, 1)) == (1, "there is no tier 1")
    assert refusal(Prefetch(99)) == (0, "there is no tensor 99")


def test_rule_9_what_may_be_swapped_out() -> None:
    assert refusal(OUT) == (0, "'big' is swapped out but not on the device")
    assert refusal(C0, OUT, OUT) == (2, "'big' is swapped out twice")
    assert refusal(C0, OUT, WAIT, IN, WAIT, OUT) == (5, "'big' is swapped out twice")
    assert refusal(SwapOut(0)) == (0, "'x' is pinned and cannot be swapped out")


def test_rule_10_no_read_before_the_write_is_complete() -> None:
    assert refusal(C0, IN) == (1, "'big' is read back but was never swapped out")
    assert refusal(C0, OUT, IN) == (2, "'big' is read back before it is written")
    assert refusal(C0, OUT, WAIT, IN, IN) == (4, "'big' is read back but on the device already")
    assert refusal(C0, OUT, WAIT, C0, IN)[1] == "'big' is read back but on the device already"


def test_rule_11_waits_are_for_what_is_on_its_way() -> None:
    assert refusal(C0, WAIT) == (1, "'big' is not on its way")
    assert refusal(C0, OUT, WAIT, WAIT) == (3, "'big' is not on its way")
    late: Schedule = tuple(Compute(op) for op in range(6))
    assert refusal(*late, SwapOut(4)) == (7, "never waited for wide")


def test_rule_12_what_is_on_its_way_is_left_alone() -> None:
    assert refusal(C0, OUT, WAIT, IN, C1) == (4, "'squash' reads ['big'], not on the device")
    assert refusal(C0, OUT, WAIT, C1) == (3, "'squash' reads ['big'], not on the device")
    assert refusal(C0, OUT, Drop(BIG)) == (2, "'big' is dropped while it is on its way")
    assert refusal(C0, OUT, C0) == (2, "'grow' makes 'big', which is on its way")
    assert refusal(C0, OUT, WAIT, IN, C0) == (4, "'grow' makes 'big', which is on its way")


def test_what_is_being_written_may_be_read() -> None:
    schedule = (C0, OUT, C1, C2, WAIT, *AWAY[5:])
    verify(Problem(graph=hourglass(), budget_bytes=153, tiers=(tier(),)), schedule)


def test_rule_13_a_tier_is_full() -> None:
    assert refusal(C0, C1, OUT, capacity_bytes=99) == (2, "100 bytes on 'disk', 1 too many")
    # After its last read the copy of big leaves room for small.
    again = (C0, C1, OUT, WAIT, IN, WAIT, SwapOut(2), Wait(2), Prefetch(2), Wait(2))
    rest = tuple(Compute(op) for op in range(2, 6))
    tight = replace(tier(), capacity_bytes=100)
    verify(Problem(graph=hourglass(), budget_bytes=999, tiers=(tight,)), (*again, *rest))


def test_a_copy_can_be_read_twice() -> None:
    twice = (C0, C1, OUT, WAIT, IN, WAIT, Drop(BIG), IN, WAIT)
    rest = tuple(Compute(op) for op in range(2, 6))
    verify(Problem(graph=hourglass(), budget_bytes=999, tiers=(tier(),)), (*twice, *rest))
