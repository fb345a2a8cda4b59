from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph import Graph, Op, Phase, Tensor
from memplan.planner.limits import lower_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.planner.verify import verify
from memplan.solvers.exhaustive import Exhaustive, _Search
from tests.graphs import chain, detour, random_graphs, unit_chain


def solve(graph: Graph, budget_bytes: int, solver: Exhaustive | None = None) -> Solution:
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    solution = (solver or Exhaustive()).solve(problem, Limits())
    if solution.schedule is not None:
        verify(problem, solution.schedule)
        assert simulate(graph, solution.schedule).time_ns == solution.proven_bound_ns
    return solution


@pytest.mark.parametrize(
    ("budget_bytes", "extra_ns"),
    [
        (6, 0),  # x, a1 .. a4 and g4 while the loss runs: everything is kept
        (5, 1),  # without a1: f1 runs again for b2
        (4, 3),  # only x and a3 stay: f1 and f2 run again for b3, f1 for b2
    ],
)
def test_chain_of_four(budget_bytes: int, extra_ns: int) -> None:
    solution = solve(chain(4), budget_bytes)
    assert solution.status is Status.OPTIMAL
    assert solution.proven_bound_ns == 9 + extra_ns


def test_below_the_limit() -> None:
    solution = solve(chain(3), 3)
    assert (solution.status, solution.minimum_bytes) == (Status.INFEASIBLE, 4)


def test_a_value_that_cannot_be_made_again_is_kept() -> None:
    graph = chain(3)
    fixed = Graph(
        ops=tuple(replace(op, recomputable=False) for op in graph.ops),
        tensors=graph.tensors,
    )
    assert solve(fixed, 5).proven_bound_ns == 7
    refused = solve(fixed, 4)
    assert (refused.status, refused.minimum_bytes) == (Status.INFEASIBLE, 5)


def reorderable() -> Graph:
    """Make two tensors of 4 bytes, then shrink each to 1 byte, then read both.

    In order: 4 + 4 + 1 = 9 bytes. Shrinking the first before the second is made: 6.
    """
    return Graph(
        ops=(
            Op(name="a", inputs=(), outputs=(0,), time_ns=1),
            Op(name="b", inputs=(), outputs=(1,), time_ns=1),
            Op(name="A", inputs=(0,), outputs=(2,), time_ns=1),
            Op(name="B", inputs=(1,), outputs=(3,), time_ns=1),
            Op(name="end", inputs=(2, 3), outputs=(), time_ns=1),
        ),
        tensors=tuple(Tensor(name=f"t{i}", nbytes=n) for i, n in enumerate((4, 4, 1, 1))),
    )


def test_reordering_is_free_unless_the_order_is_fixed() -> None:
    assert solve(reorderable(), 6).proven_bound_ns == 5
    # Both large tensors are there before either is small: b's goes, and is made again.
    assert solve(reorderable(), 8, Exhaustive(fixed_order=True)).proven_bound_ns == 6
    assert solve(reorderable(), 5).status is Status.INFEASIBLE


def test_forward_ops_do_not_move_behind_the_boundary() -> None:
    ops = reorderable().ops
    for at, best_ns in ((2, 6), (5, 5)):
        phased = tuple(
            replace(op, phase=Phase.FORWARD if i < at else Phase.BACKWARD)
            for i, op in enumerate(ops)
        )
        graph = Graph(ops=phased, tensors=reorderable().tensors)
        assert solve(graph, 8).proven_bound_ns == best_ns


def test_ops_in_order_stay_in_order() -> None:
    graph = reorderable()
    ordered = tuple(replace(op, in_order=i in (1, 2)) for i, op in enumerate(graph.ops))
    # b runs before A; a may come after b, but then B has to come before a: b, B, a, A fits.
    solution = solve(Graph(ops=ordered, tensors=graph.tensors), 6)
    assert solution.proven_bound_ns == 5
    assert solution.schedule is not None
    assert sequence_of(solution.schedule)[0] == 1


def test_stages_in_captured_order_can_need_more_memory() -> None:
    # See the docstring of `detour`: Checkmate's model is not exact for the captured order. With
    # one byte more, C can stay beside wide's output and workspace.
    assert solve(detour(), 12, Exhaustive(fixed_order=True)).proven_bound_ns == 6 + 4
    assert solve(detour(), 12, Exhaustive(staged=True)).status is Status.INFEASIBLE
    assert solve(detour(), 13, Exhaustive(staged=True)).proven_bound_ns == 6 + 2


def test_large_graphs_are_refused() -> None:
    solution = solve(unit_chain(8), 5)
    assert solution.status is Status.UNKNOWN
    assert "17 ops" in solution.reason


def test_it_gives_up_after_the_states_it_may_settle() -> None:
    solution = solve(unit_chain(5), 4, Exhaustive(max_states=3))
    assert solution.status is Status.UNKNOWN
    assert "gave up" in solution.reason


@settings(deadline=None, max_examples=150)
@given(random_graphs(max_ops=6))
def test_nothing_fits_below_the_lower_limit(graph: Graph) -> None:
    limit_bytes, _ = lower_limit(graph)
    below = Problem(graph=graph, budget_bytes=limit_bytes - 1)
    found = _Search(below, fixed_order=False, staged=False).run(10**6, float("inf"))
    assert found.status is Status.INFEASIBLE
    assert solve(graph, 1000).proven_bound_ns == graph.time_ns


@settings(deadline=None, max_examples=100)
@given(random_graphs(max_ops=6))
def test_less_freedom_never_helps(graph: Graph) -> None:
    limit_bytes, _ = lower_limit(graph)
    for budget_bytes in range(limit_bytes, limit_bytes + 4):
        times = []
        for solver in (Exhaustive(), Exhaustive(fixed_order=True), Exhaustive(staged=True)):
            solution = solve(graph, budget_bytes, solver)
            assert solution.status is not Status.UNKNOWN
            fits = solution.status is Status.OPTIMAL
            times.append(solution.proven_bound_ns if fits else float("inf"))
        assert times == sorted(times)
