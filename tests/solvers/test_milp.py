from __future__ import annotations

import sys

import pytest

from memplan.errors import SolverUnavailable
from memplan.planner.problem import Limits, Problem
from memplan.planner.simulate import simulate
from memplan.solvers.programs._milp import CostScale, MilpResult, Outcome, add_row, solve_milp
from memplan.solvers.programs.checkmate import Checkmate
from tests.graphs import unit_chain

pulp = pytest.importorskip("pulp")


def knapsack(least: float, time_s: float = 10.0) -> MilpResult:
    """Minimise 3 x + 2 y with 2 x + y >= least, both 0 or 1."""
    model = pulp.LpProblem("knapsack", pulp.LpMinimize)
    x, y = (model.add_variable(name, 0, 1, "Binary") for name in "xy")
    model += pulp.LpAffineExpression([(x, 3.0), (y, 2.0)])
    add_row(model, [(x, -2.0), (y, -1.0)], "<=", -least)
    return solve_milp(model, time_s, threads=1, seed=0)


@pytest.fixture(params=["highs", "cbc"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "highs":
        pytest.importorskip("highspy")
        return
    monkeypatch.setitem(sys.modules, "highspy", None)
    try:
        knapsack(1)
    except SolverUnavailable:
        pytest.skip("CBC is not installed")


@pytest.mark.usefixtures("backend")
def test_both_backends_prove_the_same() -> None:
    # Only y for 1, only x for 2, both for 3, never 4.
    for least, cost in ((1, 2.0), (2, 3.0), (3, 5.0)):
        result = knapsack(least)
        assert result.outcome is Outcome.OPTIMAL
        assert result.bound == pytest.approx(cost)
    assert knapsack(3).values == pytest.approx({"x": 1.0, "y": 1.0})
    assert knapsack(4).outcome is Outcome.INFEASIBLE


@pytest.mark.usefixtures("backend")
def test_checkmate_runs_on_both_backends() -> None:
    # The published optimum of the chain: 9 units of extra time.
    graph = unit_chain(8)
    solution = Checkmate().solve(Problem(graph=graph, budget_bytes=4), Limits(time_s=60))
    assert solution.schedule is not None
    assert simulate(graph, solution.schedule).time_ns == graph.time_ns + 9


@pytest.mark.parametrize(
    ("right", "outcome"), [(0.0, Outcome.OPTIMAL), (-1.0, Outcome.INFEASIBLE)]
)
def test_a_model_without_variables(right: float, outcome: Outcome) -> None:
    model = pulp.LpProblem("empty", pulp.LpMinimize)
    add_row(model, [], "<=", right)
    assert solve_milp(model, 1.0, threads=1, seed=0).outcome is outcome


def test_whole_costs_give_whole_bounds() -> None:
    scale = CostScale.of([6, 9, 300])
    assert (scale.unit_ns, scale.exact) == (3.0, True)
    assert scale.bound_ns(1.999_999_9) == 6
    assert scale.bound_ns(1.5) == 6
    assert scale.bound_ns(float("-inf")) == 0


def test_large_costs_give_bounds_from_below() -> None:
    scale = CostScale.of([10**12 + 1, 10**12])
    assert not scale.exact
    # The objective of the first op alone.
    assert 10**12 - 10**7 < scale.bound_ns((10**12 + 1) / scale.unit_ns) <= 10**12 + 1
