from __future__ import annotations

from benchmarks.plans.rows import plan
from tests.small_graphs import hourglass


def test_a_row_by_hand() -> None:
    # `grow` runs again: 10 ns beside 15, and no schedule does without.
    row = plan(hourglass(), 104, None, "auto", 5.0)
    assert (row["status"], row["budget"]) == ("optimal", 104 / 153)
    assert (row["extra"], row["proven"], row["gap"]) == (25 / 15 - 1, 25 / 15 - 1, 0.0)


def test_a_budget_below_the_limit_has_no_plan() -> None:
    row = plan(hourglass(), 103, None, "auto", 5.0)
    assert row["status"] == "infeasible"
    assert row["minimum_bytes"] == 104
    assert "extra" not in row
