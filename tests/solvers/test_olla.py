"""Orders against all legal orders of small graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph import Graph, Op, Tensor
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.verify import is_valid, verify
from memplan.solvers.orders._order import Rules
from memplan.solvers.orders.olla import Olla, segments
from tests.graphs import chain, random_graphs


def branches(count: int, length: int) -> Graph:
    """Return `count` chains of `length` ops each, captured breadth first, and one op at the end.

    Each chain begins with 10 bytes and ends with 1: one chain after the other takes less.
    """
    ops: list[Op] = []
    tensors: list[Tensor] = []
    for depth in range(length):
        for branch in range(count):
            made = len(tensors)
            tensors.append(Tensor(name=f"t{made}", nbytes=10 if depth < length - 1 else 1))
            reads = () if not depth else (made - count,)
            ops.append(Op(name=f"b{branch}.{depth}", inputs=reads, outputs=(made,), time_ns=1))
    last = tuple(range(len(tensors) - count, len(tensors)))
    tensors.append(Tensor(name="end", nbytes=1))
    ops.append(Op(name="end", inputs=last, outputs=(len(tensors) - 1,), time_ns=1))
    return Graph(ops=tuple(ops), tensors=tuple(tensors))


def orders(graph: Graph) -> Iterator[tuple[int, ...]]:
    """Yield every legal order."""
    rules = Rules(graph)

    def longer(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(graph.ops):
            yield order
        for v in range(len(graph.ops)):
            late = not rules.is_forward[v] and len(order) < rules.forward
            if v not in order and not late and set(rules.before[v]) <= set(order):
                yield from longer((*order, v))

    yield from longer(())


def peak_bytes(graph: Graph, order: tuple[int, ...]) -> int:
    return simulate(graph, schedule_of(graph, order)).peak_bytes


@settings(deadline=None, max_examples=60)
@given(random_graphs(max_ops=7))
def test_it_finds_and_proves_the_lowest_peak_of_all_orders(graph: Graph) -> None:
    lowest_bytes = min(peak_bytes(graph, order) for order in orders(graph))
    order, least_bytes = Olla().order(graph, lowest_bytes - 1, Limits())
    assert peak_bytes(graph, order) == lowest_bytes
    assert least_bytes <= lowest_bytes
    problem = Problem(graph=graph, budget_bytes=lowest_bytes)
    assert is_valid(problem, schedule_of(graph, order))


def test_branches_one_after_the_other() -> None:
    """Captured, three ends of 10 bytes meet; one by one, two ends of 1 beside 10 + 10."""
    graph = branches(3, 3)
    assert peak_bytes(graph, tuple(range(10))) == 40
    problem = Problem(graph=graph, budget_bytes=22)
    solution = Olla().solve(problem, Limits())
    assert solution.status is Status.OPTIMAL
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    _, least_bytes = Olla().order(graph, 21, Limits())
    assert least_bytes == 22
    refused = Olla().solve(Problem(graph=graph, budget_bytes=21), Limits())
    assert (refused.status, "none has less than 22" in refused.reason) == (Status.UNKNOWN, True)


def test_large_parts_are_ordered_in_windows() -> None:
    problem = Problem(graph=branches(8, 4), budget_bytes=27)
    solution = Olla(most_ops=8).solve(problem, Limits(time_s=30))
    assert solution.status is Status.OPTIMAL, solution.reason


@pytest.mark.parametrize("layers", [1, 4])
def test_a_chain_has_one_order(layers: int) -> None:
    graph = chain(layers)
    assert segments(graph) == [(i, i + 1) for i in range(len(graph.ops))]
