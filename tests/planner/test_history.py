"""What a history says is what the judge counts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from memplan.graph_capture.graph import Graph
from memplan.planner.history import History, history, residence_spans
from memplan.planner.schedule import Compute, Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.tiers import Tier
from tests.planner.test_swap_timelines import AWAY, tier
from tests.small_graphs import HOURGLASS_RECOMPUTED, chain, hourglass

CASES: dict[str, tuple[Graph, Schedule, tuple[Tier, ...]]] = {
    "kept": (chain(), schedule_of(chain(), range(3)), ()),
    "recomputed": (hourglass(), schedule_of(hourglass(), HOURGLASS_RECOMPUTED), ()),
    "moved": (hourglass(), AWAY, (tier(buffer_bytes=7),)),
    "moved slowly": (hourglass(), AWAY, (tier(write=5, read=10),)),
}


@pytest.mark.parametrize("case", CASES)
def test_spans_add_up_to_the_bytes_of_every_step(case: str) -> None:
    graph, schedule, tiers = CASES[case]
    timeline = simulate(graph, schedule, tiers)
    spans = residence_spans(graph, schedule)
    for i, step in enumerate(schedule):
        there = sum(graph.tensors[s.tensor].nbytes for s in spans if s.first <= i <= s.last)
        own = graph.ops[step.op].workspace_bytes if isinstance(step, Compute) else 0
        assert timeline.buffer_bytes + there + own == timeline.live_bytes[i]


@pytest.mark.parametrize("case", CASES)
def test_lanes_end_when_the_judge_says_and_do_not_overlap(case: str) -> None:
    graph, schedule, tiers = CASES[case]
    timeline, told = simulate(graph, schedule, tiers), history(graph, schedule, tiers)
    assert told.end_ns == timeline.time_ns
    assert sum(stall.end_ns - stall.start_ns for stall in told.stalls) == timeline.stall_ns
    compute = [(x.start_ns, x.end_ns) for x in told.runs]
    compute = sorted(compute + [(x.start_ns, x.end_ns) for x in told.stalls])
    for out in (True, False):
        copies = [(x.start_ns, x.end_ns) for x in told.transfers if x.out is out]
        for lane in (compute, copies):
            assert all(a[1] <= b[0] for a, b in pairwise(lane))


def test_a_second_run_and_a_stall_are_told() -> None:
    repeats = [run.repeat for run in _history("recomputed").runs]
    assert max(repeats) == 1
    assert _history("moved slowly").stalls


def _history(case: str) -> History:
    graph, schedule, tiers = CASES[case]
    return history(graph, schedule, tiers)
