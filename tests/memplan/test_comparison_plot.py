from __future__ import annotations

import pytest

from memplan.planner.compare import ComparisonRow


def row(gigabytes: int, bound: float) -> ComparisonRow:
    return ComparisonRow(
        solver="auto",
        budget=f"{gigabytes}GB",
        budget_bytes=gigabytes * 10**9,
        status="feasible",
        overhead=0.5,
        bound=bound,
    )


def test_a_bound_holds_for_all_smaller_budgets() -> None:
    pytest.importorskip("matplotlib")
    from memplan.comparison_plot import _bounds

    line = [(1.0, 20.0), (2.0, 10.0), (3.0, 10.0)]
    assert _bounds([row(3, 0.1), row(2, 0.0), row(1, 0.2)]) == line
