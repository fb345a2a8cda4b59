from __future__ import annotations

import pytest

from memplan.errors import UnknownSolver
from memplan.planner.minimum import minimum_budget
from memplan.planner.problem import Limits, Problem
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from tests.graphs import chain, unit_chain


def test_a_chain_can_run_in_its_limit() -> None:
    # Recomputing from x for each gradient needs x, a_{i-1}, g_i and g_{i-1} only.
    graph = chain(6, nbytes=1000)
    found = minimum_budget(graph)
    assert found.limit_bytes == found.feasible_bytes == 4000
    verify(Problem(graph=graph, budget_bytes=4000), found.schedule)


def test_the_schedule_has_the_peak_that_is_named() -> None:
    graph = unit_chain(12)
    found = minimum_budget(graph, limits=Limits(time_s=10))
    assert simulate(graph, found.schedule).peak_bytes == found.feasible_bytes
    assert found.limit_bytes <= found.feasible_bytes < 13


def test_a_solver_that_never_fits_leaves_the_unplanned_peak() -> None:
    graph = unit_chain(5)
    assert minimum_budget(graph, "keep-all").feasible_bytes == 7


def test_an_unknown_solver_is_named() -> None:
    with pytest.raises(UnknownSolver, match="no solver 'nope'"):
        minimum_budget(chain(2), "nope")
