"""Rotor, revolve and BPTT on chains whose optimum is known, and what is no chain."""

from __future__ import annotations

import random
from functools import cache
from typing import TypeAlias

import pytest

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Solver, Status
from memplan.planner.verify import verify
from memplan.solvers.chains._chain import Chain, chain_of
from memplan.solvers.chains._chain_plans import sequence_for
from memplan.solvers.chains.bptt import Bptt
from memplan.solvers.chains.revolve import Revolve, forward_steps
from memplan.solvers.chains.rotor import Rotor
from memplan.solvers.exhaustive import Exhaustive
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
@pytest.mark.parametrize("layers", [3, 4, 5, pytest.param(6, marks=pytest.mark.slow)])
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


def uneven(layers: int, rng: random.Random) -> Graph:
    """Return a chain in which each layer has its own bytes, time, and something of its own saved.

    Layer i reads a[i - 1] and makes a[i] and s[i]; its backward op reads a[i - 1], s[i] and g[i].
    """
    tensors = [Tensor(name="a0", nbytes=rng.randint(1, 6), kind=Kind.INPUT)]

    def made(name: str, kind: Kind = Kind.ACTIVATION) -> int:
        tensors.append(Tensor(name=name, nbytes=rng.randint(1, 9), kind=kind))
        return len(tensors) - 1

    outputs, saved, ops = [0], [0], []
    for i in range(1, layers + 1):
        outputs.append(made(f"a{i}"))
        saved.append(made(f"s{i}"))
        writes, time_ns = (outputs[i], saved[i]), rng.randint(1, 9)
        ops.append(Op(name=f"f{i}", inputs=(outputs[i - 1],), outputs=writes, time_ns=time_ns))
    gradient = made(f"g{layers}")
    ops.append(Op(name="loss", inputs=(outputs[-1],), outputs=(gradient,), time_ns=1))
    for i in range(layers, 0, -1):
        reads = (outputs[i - 1], saved[i], gradient)
        gradient = made(f"g{i - 1}", Kind.ACTIVATION if i > 1 else Kind.GRADIENT)
        time_ns, phase = rng.randint(1, 9), Phase.BACKWARD
        op = Op(name=f"b{i}", inputs=reads, outputs=(gradient,), time_ns=time_ns, phase=phase)
        ops.append(op)
    return Graph(ops=tuple(ops), tensors=tuple(tensors))


Tree: TypeAlias = "tuple[int, Tree | None, Tree | None]"
"""A split and the plans of the segments on its left and right, None where there is none."""


@cache
def trees(s: int, t: int) -> tuple[Tree, ...]:
    """Return every plan of rotor's class for the segment from stage s to t."""
    if s == t:
        return ((s, None, None),)
    found: list[Tree] = [(s, None, right) for right in trees(s + 1, t)]
    for split in range(s + 1, t + 1):
        found += [
            (split, left, right) for left in trees(s, split - 1) for right in trees(split, t)
        ]
    return tuple(found)


def followed(stages: Chain, tree: Tree) -> tuple[int, ...]:
    """Return the ops of a plan; the number of its right segment stands for what comes there."""
    plans: dict[tuple[int, int, int], Tree] = {(0, len(stages) - 1, 0): tree}

    def choose(s: int, t: int, state: int, first: bool) -> tuple[int, int]:
        split, left, right = plans[s, t, state]
        if left is not None:
            plans[s, split - 1, state] = left
        if right is not None:
            begin = max(split, s + 1) if split == s else split
            plans[begin, t, len(plans) + 1] = right
            return split, len(plans)
        return split, state

    sequence = sequence_for(stages, choose, 0)
    assert sequence is not None
    return sequence


@pytest.mark.parametrize("layers", [4, 5, 6, pytest.param(8, marks=pytest.mark.slow)])
def test_rotor_is_the_best_of_all_plans_of_its_class(layers: int) -> None:
    """On uneven chains, every plan that keeps a checkpoint until its window is done."""
    for seed in range(3):
        graph = uneven(layers, random.Random(seed))
        stages = chain_of(graph, 100)
        assert isinstance(stages, Chain)
        plans = [followed(stages, tree) for tree in trees(0, len(stages) - 1)]
        timelines = [simulate(graph, schedule_of(graph, plan)) for plan in plans]
        peaks = sorted({timeline.peak_bytes for timeline in timelines})
        for budget_bytes in (peaks[0] - 1, *peaks[:: max(1, len(peaks) // 8)]):
            fitting = [t.time_ns for t in timelines if t.peak_bytes <= budget_bytes]
            found = solve(Rotor(), graph, budget_bytes)
            assert (found.schedule is None) == (not fitting), (seed, budget_bytes)
            if found.schedule is not None:
                assert extra_ns(graph, found) == min(fitting) - graph.time_ns, (
                    seed,
                    budget_bytes,
                )


@pytest.mark.parametrize("layers", [6, 7, pytest.param(8, marks=pytest.mark.slow)])
def test_bptt_is_the_best_of_all_plans_on_equal_steps(layers: int) -> None:
    """The same brute force, where every step keeps nothing of its own beside its output."""
    graph = chain(layers)
    stages = chain_of(graph, 100)
    assert isinstance(stages, Chain)
    least_ns: dict[int, int] = {}
    for tree in trees(0, len(stages) - 1):
        timeline = simulate(graph, schedule_of(graph, followed(stages, tree)))
        before_ns = least_ns.get(timeline.peak_bytes, timeline.time_ns)
        least_ns[timeline.peak_bytes] = min(before_ns, timeline.time_ns)
    for budget_bytes in range(min(least_ns), max(least_ns) + 1):
        best_ns = min(ns for nbytes, ns in least_ns.items() if nbytes <= budget_bytes)
        found = solve(Bptt(), graph, budget_bytes)
        assert extra_ns(graph, found) == best_ns - graph.time_ns


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


def test_statistics_that_are_written_at_the_end_cross_no_cut() -> None:
    """As batch normalisation's: each layer's own is read by an op after all layers."""
    plain = uneven(6, random.Random(0))
    ops = list(plain.ops)
    for i in range(6):
        statistic = ops[i].outputs[1]
        ops.insert(6 + i, Op(name=f"note{i}", inputs=(statistic,), outputs=(), recomputable=False))
    noted = Graph(ops=tuple(ops), tensors=plain.tensors)
    stages, before = chain_of(noted, 100), chain_of(plain, 100)
    assert isinstance(stages, Chain)
    assert isinstance(before, Chain)
    assert len(stages) == len(before)
    peak_bytes = simulate(noted, schedule_of(noted, range(len(noted.ops)))).peak_bytes
    assert solve(Rotor(), noted, peak_bytes - 1).schedule is not None
