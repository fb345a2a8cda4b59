import pytest

from memplan.errors import BudgetSyntaxError
from memplan.planner.problem import Limits
from memplan.planner.sweep import SweepPoint, knee, pareto, sweep
from tests.planner.test_max_batch import chain

LIMITS = Limits(time_s=10)


def swept(*budgets: str) -> list[SweepPoint]:
    return sweep(chain(100), budgets, solver="exhaustive", limits=LIMITS)


def test_each_budget_has_a_plan_or_a_reason() -> None:
    seen: list[tuple[str, int, int]] = []
    budgets = ["100%", "min", "100B"]
    points = sweep(chain(100), budgets, limits=LIMITS, progress=lambda *at: seen.append(at))
    assert [point.budget for point in points] == budgets
    assert points[0].plan is not None
    assert points[0].plan.overhead == 0
    assert points[1].plan is not None
    assert points[1].plan.planned_peak_bytes == 310
    assert points[2].plan is None
    assert points[2].feasible_bytes == 310
    assert points[2].reason == "no plan fits"
    assert seen[-1] == ("solving", 2, 3)


def test_less_memory_never_takes_less_time_on_the_curve() -> None:
    curve = pareto(swept("100%", "90%", "80%", "70%", "100%", "min"))
    plans = [point.plan for point in curve if point.plan is not None]
    peaks = [plan.planned_peak_bytes for plan in plans]
    times = [plan.planned_time_ns for plan in plans]
    assert peaks == sorted(set(peaks), reverse=True)
    assert times == sorted(set(times))
    assert len(plans) >= 3


def test_the_knee_is_the_cheap_point() -> None:
    points = swept("100%", "82%", "min")
    # 410 bytes cost one forward op again (8 %), 310 bytes three (25 %): two thirds of the way
    # would be on the line.
    plans = [point.plan for point in points if point.plan is not None]
    assert [plan.planned_peak_bytes for plan in plans] == [510, 410, 310]
    first, middle, last = (plan.planned_time_ns for plan in plans)
    bent = middle - first < (last - first) / 2
    assert (knee(points) is points[1]) == bent


def test_two_points_have_no_knee() -> None:
    assert knee(swept("100%", "min")) is None
    assert knee([]) is None


def test_a_budget_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BudgetSyntaxError):
        swept("100%", "lots")
