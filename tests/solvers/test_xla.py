"""Block rematerialization by hand and on the unit chain."""

from __future__ import annotations

import pytest

from memplan.graph_capture.graph import Graph, Op, Phase, Tensor
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from memplan.solvers.xla import Xla
from tests.graphs import unit_chain
from tests.small_graphs import HOURGLASS_RECOMPUTED, hourglass


def test_the_hourglass() -> None:
    problem = Problem(graph=hourglass(), budget_bytes=104)
    solution = Xla().solve(problem, Limits())
    assert solution.schedule is not None
    assert sequence_of(solution.schedule) == HOURGLASS_RECOMPUTED


def two_ways() -> Graph:
    """While `wide` runs, p (4 bytes, 90 ns) or q and r (3 bytes each, 1 ns) can go; r is of q."""
    return Graph(
        ops=(
            Op(name="p", inputs=(), outputs=(0,), time_ns=90),
            Op(name="q", inputs=(), outputs=(1,), time_ns=1),
            Op(name="r", inputs=(1,), outputs=(2,), time_ns=1),
            Op(name="wide", inputs=(), outputs=(), time_ns=1, workspace_bytes=4),
            Op(name="end", inputs=(0, 1, 2), outputs=(), time_ns=1, phase=Phase.BACKWARD),
        ),
        tensors=(
            Tensor(name="p", nbytes=4),
            Tensor(name="q", nbytes=3),
            Tensor(name="r", nbytes=3),
        ),
    )


@pytest.mark.parametrize(
    ("budget_bytes", "expected"),
    [(14, (0, 1, 2, 3, 4)), (10, (0, 1, 2, 3, 0, 4))],
)
def test_it_looks_at_bytes_and_not_at_time(budget_bytes: int, expected: tuple[int, ...]) -> None:
    """4 bytes too many: p alone frees them, so no block of q and r is looked at."""
    solution = Xla().solve(Problem(graph=two_ways(), budget_bytes=budget_bytes), Limits())
    assert solution.schedule is not None
    assert sequence_of(solution.schedule) == expected


@pytest.mark.parametrize(
    ("length", "budget_bytes", "optimum_ns"), [(20, 16, 6), (40, 30, 12), (10, 4, 14)]
)
def test_it_is_near_the_published_optima_of_chains(
    length: int, budget_bytes: int, optimum_ns: int
) -> None:
    problem = Problem(graph=unit_chain(length), budget_bytes=budget_bytes)
    solution = Xla().solve(problem, Limits())
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    extra_ns = simulate(problem.graph, solution.schedule).time_ns - problem.graph.time_ns
    assert optimum_ns <= extra_ns <= optimum_ns + 1
