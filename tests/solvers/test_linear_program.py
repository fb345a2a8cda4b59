from __future__ import annotations

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.solvers.programs._linear_program import INFINITY, LinearProgram
from memplan.solvers.programs._milp import Outcome


def corner() -> LinearProgram:
    """Maximise a + b under 2a + b <= 7.5 and a + 2b <= 7.5: 5 at (2.5, 2.5); whole, 4."""
    program = LinearProgram()
    a, b = (program.column(-1.0, 0.0, 5.0, integer=True) for _ in range(2))
    program.at_most([(a, 2.0), (b, 1.0)], 7.5)
    program.at_most([(a, 1.0), (b, 2.0)], 7.5)
    return program


def test_with_and_without_integrality() -> None:
    relaxed, whole = corner().relax(5.0), corner().solve(5.0)
    assert (relaxed.outcome, whole.outcome) == (Outcome.OPTIMAL, Outcome.OPTIMAL)
    assert abs(relaxed.bound + 5.0) < 1e-9
    assert relaxed.bound <= -5.0
    assert abs(whole.bound + 4.0) < 1e-6


def test_it_starts_from_a_point() -> None:
    assert corner().solve(5.0, start={0: 2.0, 1: 2.0}).outcome is Outcome.OPTIMAL


def test_contradicting_rows_are_infeasible() -> None:
    program = LinearProgram()
    column = program.column()
    program.row(0.6, [(column, 0.5)], INFINITY)
    assert program.relax(5.0).outcome is Outcome.INFEASIBLE
    assert program.solve(5.0).outcome is Outcome.INFEASIBLE


def test_without_columns_the_rows_decide() -> None:
    program = LinearProgram()
    program.at_most([], 1.0)
    assert program.solve(1.0).outcome is Outcome.OPTIMAL
    program.at_most([], -1.0)
    assert program.relax(1.0).outcome is Outcome.INFEASIBLE


def test_a_column_named_twice_counts_twice() -> None:
    program = LinearProgram()
    column = program.column(-1.0, 0.0, 9.0)
    program.at_most([(column, 1.0), (column, 2.0)], 6.0)
    assert abs(program.relax(5.0).bound + 2.0) < 1e-9


@settings(deadline=None, max_examples=200)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=2))
def test_any_duals_prove_a_bound(duals: list[float]) -> None:
    assert corner().dual_bound(numpy.array(duals)) <= -5.0


def test_the_right_duals_prove_the_optimum() -> None:
    # y = (-1/3, -1/3): c - y A = 0, and y b = -5.
    assert abs(corner().dual_bound(numpy.array([-1 / 3, -1 / 3])) + 5.0) < 1e-12
