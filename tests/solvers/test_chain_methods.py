"""Rotor, revolve and BPTT on chains whose optimum is known, and what is no chain."""

from __future__ import annotations

import pytest

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.problem import Limits, Problem
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Solver, Status
from memplan.planner.verify import verify
from memplan.solvers._chain import Chain, chain_of
from memplan.solvers.bptt import Bptt
from memplan.solvers.exhaustive import Exhaustive
from memplan.solvers.revolve import Revolve, forward_steps
from memplan.solvers.rotor import Rotor
from tests.graphs import chain, unet, unit_chain

METHODS = (Rotor(), Revolve(), Bptt())
NAMES = [method.name for method in METHODS]


def solve(method: Solver, graph: Graph, budget_bytes: int) -> Solution:
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    solution = method.solve(problem, Limits())
    if solution.schedule is not None:
        verify(problem, solution.schedule)
    return solution


def extra_ns(graph: Graph, solution: Solution) -> int:
    assert solution.schedule is not None, solution.reason
    return simulate(graph, solution.schedule).time_ns - graph.time_ns


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize(
    ("length", "budget_bytes", "optimum_ns"),
    [(8, 4, 9), (10, 4, 14), (12, 4, 20), (20, 16, 6), (40, 30, 12)],
)
def test_published_optima_of_the_unit_chain(
    method: Solver, length: int, budget_bytes: int, optimum_ns: int
) -> None:
    graph = unit_chain(length)
    assert extra_ns(graph, solve(method, graph, budget_bytes)) == optimum_ns


@pytest.mark.slow
@pytest.mark.parametrize(("budget_bytes", "optimum_ns"), [(66, 16), (41, 41), (10, 108)])
def test_published_optima_of_the_long_unit_chain(budget_bytes: int, optimum_ns: int) -> None:
    graph = unit_chain(80)
    assert extra_ns(graph, solve(Rotor(), graph, budget_bytes)) == optimum_ns


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("layers", [3, 4, 5])
def test_equal_chains_are_solved_like_the_oracle_does(method: Solver, layers: int) -> None:
    graph = chain(layers)
    for budget_bytes in range(4, layers + 3):
        problem = Problem(graph=graph, budget_bytes=budget_bytes)
        oracle = Exhaustive(fixed_order=True).solve(problem, Limits())
        assert extra_ns(graph, solve(method, graph, budget_bytes)) == extra_ns(graph, oracle)


@pytest.mark.parametrize("steps", range(1, 20))
@pytest.mark.parametrize("checkpoints", range(1, 6))
def test_the_binomial_formula_is_the_recursion(steps: int, checkpoints: int) -> None:
    def least(length: int, kept: int) -> int:
        if length == 1:
            return 0
        if kept == 1:
            return length * (length - 1) // 2
        return min(
            y + forward_steps(length - y, kept - 1) + forward_steps(y, kept)
            for y in range(1, length)
        )

    assert forward_steps(steps, checkpoints) == least(steps, checkpoints)


def test_revolve_takes_the_binomial_number_of_steps() -> None:
    """Ten stages, two checkpoints beside the start: 15 steps; the first pass is 9 of them."""
    graph = chain(10)
    least = Revolve(checkpoints=2).solve(Problem(graph=graph, budget_bytes=6), Limits())
    assert extra_ns(graph, least) == forward_steps(10, 3) - 9 == 6


def heavy_middle() -> Graph:
    """A chain x -> p -> q -> r -> loss; p takes 4 bytes, q and r 1; making p takes 10 ns.

    Its backward ops read x, p, q and r in turn. All kept: while lose runs p 4, q 1, r 1, g 1.
    """
    sizes = {"x": 1, "p": 4, "q": 1, "r": 1, "g3": 1, "g2": 1, "g1": 1, "g0": 1}
    kinds = {"x": Kind.INPUT, "g0": Kind.GRADIENT}
    number = {name: i for i, name in enumerate(sizes)}
    rows = [("make_p", "x", "p", 10), ("make_q", "p", "q", 1), ("make_r", "q", "r", 1)]
    rows += [("lose", "r", "g3", 1)]
    later = [("b3", "r g3", "g2", 1), ("b2", "q g2", "g1", 1), ("b1", "p g1", "g0", 1)]
    return Graph(
        tensors=tuple(
            Tensor(name=name, nbytes=size, kind=kinds.get(name, Kind.ACTIVATION))
            for name, size in sizes.items()
        ),
        ops=tuple(
            Op(
                name=name,
                inputs=tuple(number[t] for t in reads.split()),
                outputs=(number[made],),
                time_ns=time_ns,
                phase=Phase.BACKWARD if (name, reads, made, time_ns) in later else Phase.FORWARD,
            )
            for name, reads, made, time_ns in (*rows, *later)
        ),
    )


def test_rotor_weighs_bytes_and_time() -> None:
    """In 8 bytes everything fits. In 7, q goes: 1 ns, where p or r would be dearer or useless."""
    graph = heavy_middle()
    for budget_bytes in (9, 8, 7):
        problem = Problem(graph=graph, budget_bytes=budget_bytes)
        oracle = Exhaustive(fixed_order=True).solve(problem, Limits())
        found = solve(Rotor(), graph, budget_bytes)
        assert (found.schedule is None) == (oracle.schedule is None)
        if oracle.schedule is not None:
            assert extra_ns(graph, found) == extra_ns(graph, oracle)


def test_keeping_whole_stages_never_costs() -> None:
    graph = unit_chain(12)
    for budget_bytes in (4, 6, 8):
        with_it = extra_ns(graph, solve(Rotor(), graph, budget_bytes))
        without = solve(Rotor(keep_whole_stages=False), graph, budget_bytes)
        assert with_it <= extra_ns(graph, without)


def test_the_stages_of_a_chain() -> None:
    """The loss has no tensor of its own to go back to, so it belongs to the last stage."""
    found = chain_of(chain(4))
    assert isinstance(found, Chain)
    assert found.forward == ((0,), (1,), (2,), (3, 4))
    assert found.backward == ((8,), (7,), (6,), (5,))
    assert found.boundary == (1, 2, 3, None)


def test_stages_are_merged_where_there_are_too_many() -> None:
    found = chain_of(unit_chain(40), most_stages=10)
    assert isinstance(found, Chain)
    assert 5 <= len(found) <= 10


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_what_is_no_chain_says_so_in_one_line(method: Solver) -> None:
    """Every level of a U-Net but the outermost has a skip beside the trunk."""
    graph = unet(3)
    solution = solve(method, graph, 170)
    assert solution.status is Status.UNKNOWN
    assert solution.reason.startswith("no chain: ")
    no_backward = chain_of(Graph(ops=(), tensors=()))
    assert no_backward == "no chain: the step has no backward ops"
