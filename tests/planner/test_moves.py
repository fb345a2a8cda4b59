"""Placing moves: what leaves, when it comes back, and what is refused."""

from __future__ import annotations

import pytest

from memplan.graph_capture.graph import Graph
from memplan.planner.extents import ALIGNMENT_BYTES, Extents, planned_bytes
from memplan.planner.moves import Move, Timing, gaps_of, moves_in, place
from memplan.planner.plan import Plan
from memplan.planner.problem import Problem
from memplan.planner.schedule import Compute, Prefetch, SwapOut, Wait, schedule_of, with_drops
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify
from tests.graphs import chain, unet
from tests.planner.test_swap_timelines import tier
from tests.small_graphs import hourglass

BIG_AWAY = Move(tensor=1, out=1, back=5)


def problem(budget_bytes: int, place: Tier | None = None) -> Problem:
    return Problem(graph=hourglass(), budget_bytes=budget_bytes, tiers=(place or tier(),))


def test_gaps_are_where_a_tensor_waits() -> None:
    # small is read by lose and then by widen, one op later: no gap.
    assert gaps_of(hourglass(), range(6)) == [BIG_AWAY]


def test_a_tight_budget_makes_it_leave_and_come_back_in_time() -> None:
    placed = place(problem(104), range(6), [BIG_AWAY])
    assert placed.schedule is not None
    verify(problem(104), placed.schedule)
    timeline = simulate(hourglass(), placed.schedule, (tier(),))
    # The write (2 ns) is half hidden; the read (1 ns) has no room before narrow is over.
    assert (timeline.peak_bytes, timeline.stall_ns) == (104, 1 + 1)


def test_with_room_the_read_starts_early() -> None:
    placed = place(problem(153, tier(write=100)), range(6), [BIG_AWAY])
    assert placed.schedule is not None
    # 153 bytes are what keeping it takes: it never leaves.
    assert placed.schedule == schedule_of(hourglass(), range(6))


def test_a_step_without_room_is_named() -> None:
    placed = place(problem(103), range(6), [BIG_AWAY])
    assert (placed.schedule, placed.failed_step, placed.missing_bytes) == (None, 5, 1)
    assert place(problem(152), range(6), []).failed_step == 3


def test_waiting_at_once_costs_the_whole_write() -> None:
    placed = place(problem(104), range(6), [BIG_AWAY], Timing(ahead=0, waits_at_once=True))
    assert placed.schedule is not None
    assert placed.schedule[2:4] == (SwapOut(1), Wait(1))
    assert simulate(hourglass(), placed.schedule, (tier(),)).stall_ns == 2 + 1


@pytest.mark.parametrize("ahead", [None, 0, 1, 3, 99])
@pytest.mark.parametrize("graph", [chain(8, nbytes=10), unet(2)], ids=["chain", "unet"])
def test_every_placement_keeps_every_rule(graph: Graph, ahead: int | None) -> None:
    order = range(len(graph.ops))
    keep_bytes = simulate(graph, schedule_of(graph, order)).peak_bytes
    moves = gaps_of(graph, order)
    fitted = 0
    for budget_bytes in range(graph.given_bytes, keep_bytes + 1):
        asked = Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier(read=3),))
        placed = place(asked, order, moves, Timing(ahead=ahead))
        if placed.schedule is None:
            assert placed.missing_bytes > 0
            assert not fitted, "what fits a smaller budget fits a larger one"
            continue
        fitted += 1
        verify(asked, placed.schedule)
    assert fitted > 1


def test_a_tensor_that_is_read_twice_is_written_once() -> None:
    graph = unet(2)
    order = range(len(graph.ops))
    gaps = gaps_of(graph, order)
    twice = [gap for gap in gaps if sum(g.tensor == gap.tensor for g in gaps) > 1]
    keep_bytes = simulate(graph, schedule_of(graph, order)).peak_bytes
    for budget_bytes in range(keep_bytes, 0, -1):
        asked = Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier(),))
        placed = place(asked, order, gaps, Timing(ahead=0, waits_at_once=True))
        if placed.schedule is None:
            break
        verify(asked, placed.schedule)
        outs = [s.tensor for s in placed.schedule if isinstance(s, SwapOut)]
        assert len(outs) == len(set(outs))
    assert twice


def test_extents_fit_first_and_join() -> None:
    one = ALIGNMENT_BYTES
    extents = Extents()
    a, b, c = extents.take(1), extents.take(one + 1), extents.take(one)
    assert (a, b, c) == (0, one, 3 * one)
    extents.give_back(a, 1)
    assert extents.take(2 * one) == 4 * one, "the hole is too small"
    extents.give_back(b, one + 1)
    assert extents.take(3 * one) == 0, "two neighbours make one hole"
    assert extents.high_bytes == 6 * one


def test_the_end_of_the_block_is_used_again() -> None:
    extents = Extents()
    extents.give_back(extents.take(5), 5)
    assert (extents.take(ALIGNMENT_BYTES + 1), extents.high_bytes) == (0, 2 * ALIGNMENT_BYTES)


def test_the_planned_size_of_a_block() -> None:
    away = with_drops(
        hourglass(),
        [Compute(0), SwapOut(1), Wait(1), Prefetch(1), Wait(1), Compute(1), SwapOut(2), Wait(2)],
    )
    assert planned_bytes(hourglass(), away, 0) == ALIGNMENT_BYTES
    assert planned_bytes(hourglass(), away, 1) == 0


def test_a_plan_with_moves_is_read_back_as_it_was() -> None:
    asked = problem(104)
    schedule = place(asked, range(6), [BIG_AWAY]).schedule
    assert schedule is not None
    plan = Plan(
        graph=asked.graph,
        schedule=schedule,
        budget_bytes=104,
        status=Status.FEASIBLE,
        solver="test",
        proven_bound_ns=15,
        tiers=asked.tiers,
    )
    assert Plan.from_json(plan.to_json()) == plan
    assert sum(plan.bytes_at_peak.values()) == plan.planned_peak_bytes
    summary = plan.summary()
    assert (summary["swapped_bytes"], summary["stall_ns"]) == (100, plan.timeline.stall_ns)


def test_the_moves_of_a_schedule_are_found_again() -> None:
    schedule = place(problem(104), range(6), [BIG_AWAY]).schedule
    assert schedule is not None
    assert moves_in(hourglass(), schedule) == [BIG_AWAY]
    assert moves_in(hourglass(), schedule_of(hourglass(), range(6))) == []
