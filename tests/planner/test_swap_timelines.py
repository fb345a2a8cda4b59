"""Timelines of schedules that move tensors, worked out by hand."""

from __future__ import annotations

import pytest

from memplan.errors import UsageError
from memplan.planner.schedule import (
    Compute,
    Drop,
    Prefetch,
    Schedule,
    SwapOut,
    Wait,
    schedule_of,
    with_drops,
)
from memplan.planner.simulate import resident_at, simulate
from memplan.planner.tiers import Lanes, Tier
from tests.small_graphs import HOURGLASS_RECOMPUTED, chain, hourglass, two_outputs

# Of the hourglass: x 0, big 1 (100 bytes), small 2, loss 3, wide 4 (50 bytes), seed 5, grad 6.
BIG = 1


def tier(write: int = 50, read: int = 100, latency_ns: int = 0, buffer_bytes: int = 0) -> Tier:
    """Return a tier whose speeds are in bytes a nanosecond."""
    return Tier(
        name="disk",
        capacity_bytes=1000,
        write_bytes_per_s=write * 10**9,
        read_bytes_per_s=read * 10**9,
        latency_ns=latency_ns,
        buffer_bytes=buffer_bytes,
    )


# grow 10 ns, squash 1 ns; big is written while lose runs, and read while narrow does.
AWAY: Schedule = (
    Compute(0),
    Compute(1),
    SwapOut(BIG),
    Compute(2),
    Wait(BIG),
    Compute(3),
    Drop(2),
    Prefetch(BIG),
    Compute(4),
    Drop(4),
    Wait(BIG),
    Compute(5),
    Drop(1),
    Drop(5),
)


def test_bytes_leave_at_the_wait_and_come_with_the_prefetch() -> None:
    timeline = simulate(hourglass(), AWAY, (tier(),))
    #  grow 101, squash 102, out 102, lose 103, wait 103, widen 3+50, drop, prefetch 52+100,
    #  narrow 153, drop 153, wait 103, finish 104
    assert timeline.live_bytes == (
        101,
        102,
        102,
        103,
        103,
        53,
        53,
        152,
        153,
        153,
        103,
        104,
        104,
        4,
    )
    assert (timeline.peak_bytes, timeline.peak_step) == (153, 8)


def test_stalls_are_what_compute_does_not_cover() -> None:
    # The write takes 2 ns from 11 to 13, lose ends at 12: 1 ns. The read takes 1 ns, narrow too.
    timeline = simulate(hourglass(), AWAY, (tier(),))
    assert (timeline.time_ns, timeline.stall_ns, timeline.swapped_bytes) == (16, 1, 100)
    # At 5 bytes/ns the read takes 20 ns from 14 on, of which narrow covers 1.
    slow = simulate(hourglass(), AWAY, (tier(read=5),))
    assert (slow.time_ns, slow.stall_ns) == (15 + 1 + 19, 20)
    # Latency counts for each transfer.
    late = simulate(hourglass(), AWAY, (tier(latency_ns=3),))
    assert late.stall_ns == (2 + 3 - 1) + (1 + 3 - 1)


def test_a_lane_carries_one_after_the_other_and_both_ways_at_once() -> None:
    lanes = Lanes((tier(write=10, read=10),))
    assert [lanes.write(0, 100, 0), lanes.write(0, 50, 3)] == [10, 15]
    assert lanes.write(0, 10, 40) == 41
    assert lanes.read(0, 100, 0) == 10


def test_buffers_count_while_the_tier_is_used() -> None:
    with_buffers = simulate(hourglass(), AWAY, (tier(buffer_bytes=7),))
    assert with_buffers.peak_bytes == 153 + 7
    assert with_buffers.buffer_bytes == 7
    plain = schedule_of(hourglass(), range(6))
    assert simulate(hourglass(), plain, (tier(buffer_bytes=7),)).buffer_bytes == 0


def test_what_is_on_its_way_is_resident() -> None:
    assert BIG in resident_at(hourglass(), AWAY, 4), "while it is waited for"
    assert BIG not in resident_at(hourglass(), AWAY, 5)
    assert BIG in resident_at(hourglass(), AWAY, 7), "from its prefetch on"


def test_a_schedule_without_swaps_is_as_before() -> None:
    for graph, sequence in ((hourglass(), HOURGLASS_RECOMPUTED), (two_outputs(), (0, 1, 0, 2))):
        plain = schedule_of(graph, sequence)
        assert simulate(graph, plain, (tier(),)) == simulate(graph, plain)
        assert with_drops(graph, map(Compute, sequence)) == plain


def test_with_drops_frees_at_once_and_leaves_to_a_swap_what_it_frees() -> None:
    assert with_drops(hourglass(), AWAY) == AWAY
    without = (step for step in AWAY if not isinstance(step, Drop))
    assert with_drops(hourglass(), without) == AWAY


def test_read_for_nobody_is_dropped_at_once() -> None:
    steps = (Compute(0), Compute(1), SwapOut(1), Wait(1), Prefetch(1), Wait(1), Compute(2))
    dropped = with_drops(chain(), steps)
    assert dropped == (*steps[:6], Drop(1), Compute(2), Drop(2))


@pytest.mark.parametrize(
    "wrong", [{"write": 0}, {"read": -1}, {"latency_ns": -1}, {"buffer_bytes": -1}]
)
def test_a_tier_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        tier(**wrong)


def test_times_are_rounded_up() -> None:
    third = Tier(name="t", capacity_bytes=1, write_bytes_per_s=3 * 10**9, read_bytes_per_s=10**9)
    assert (third.write_ns(1), third.write_ns(3), third.write_ns(4)) == (1, 1, 2)
