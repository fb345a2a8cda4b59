"""The minimum cut and the knapsack, on graphs whose cheapest cut is found by hand."""

from __future__ import annotations

import random
from itertools import combinations

import networkx
import pytest

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.verify import verify
from memplan.solvers.partitions._min_cut import is_compute_intensive, saved_by_min_cut
from memplan.solvers.partitions.knapsack import Knapsack, fill
from memplan.solvers.partitions.min_cut import MinCut

A, B, C, LOSS, GB, GA = range(1, 7)


def mlp() -> Graph:
    """x -> mm -> a 8 bytes -> gelu -> b 8 -> cast -> c 2 -> loss; backward reads a, b, c, gl."""

    def op(name: str, target: str, reads: tuple[int, ...], made: int, time_ns: int) -> Op:
        phase = Phase.BACKWARD if name.startswith("b_") else Phase.FORWARD
        return Op(
            name=name, target=target, inputs=reads, outputs=(made,), time_ns=time_ns, phase=phase
        )

    sizes = {"x": 1, "a": 8, "b": 8, "c": 2, "loss": 1, "gb": 8, "ga": 1}
    kinds = {"x": Kind.INPUT, "loss": Kind.OUTPUT, "ga": Kind.GRADIENT}
    return Graph(
        tensors=tuple(
            Tensor(name=name, nbytes=nbytes, kind=kinds.get(name, Kind.ACTIVATION))
            for name, nbytes in sizes.items()
        ),
        ops=(
            op("mm", "aten.mm.default", (0,), A, 100),
            op("gelu", "aten.gelu.default", (A,), B, 1),
            op("cast", "aten._to_copy.default", (B,), C, 1),
            op("lose", "aten.sum.default", (C,), LOSS, 1),
            op("b_cast", "aten.mul.Tensor", (C, B), GB, 1),
            op("b_gelu", "aten.gelu_backward.default", (A, GB), GA, 1),
        ),
    )


def test_the_products_output_is_saved_and_the_cheap_ops_run_again() -> None:
    """a: 8 bytes make b and c again. Saving a, b and c takes 18; without the ban, x makes all."""
    graph = mlp()
    assert saved_by_min_cut(graph, 4, {0}) == {A}
    assert saved_by_min_cut(graph, 4, set()) == frozenset()
    solution = MinCut().solve(Problem(graph=graph, budget_bytes=30), Limits())
    assert solution.schedule is not None
    assert sequence_of(solution.schedule) == (0, 1, 2, 3, 1, 2, 4, 5)


def test_a_narrow_tensor_is_saved_instead_of_a_wide_one_behind_it() -> None:
    """x -> once -> n 1 byte -> widen -> w 9 bytes, read by the backward pass: n is saved."""
    graph = Graph(
        tensors=(
            Tensor(name="n", nbytes=1),
            Tensor(name="w", nbytes=9),
            Tensor(name="g", nbytes=1, kind=Kind.GRADIENT),
        ),
        ops=(
            Op(name="once", inputs=(), outputs=(0,), recomputable=False),
            Op(name="widen", inputs=(0,), outputs=(1,)),
            Op(name="back", inputs=(1,), outputs=(2,), phase=Phase.BACKWARD),
        ),
    )
    assert saved_by_min_cut(graph, 2, {0}) == {0}


@pytest.mark.parametrize("seed", range(20))
def test_the_saved_bytes_are_those_of_networkx(seed: int) -> None:
    rng = random.Random(seed)
    count = 12
    tensors = tuple(Tensor(name=f"t{i}", nbytes=rng.randint(0, 9)) for i in range(count))
    reads = [tuple(sorted(rng.sample(range(i), min(i, 2)))) for i in range(count)]
    ops = [Op(name=f"f{i}", inputs=read, outputs=(i,)) for i, read in enumerate(reads)]
    back = tuple(sorted(rng.sample(range(count), 4)))
    ops.append(Op(name="back", inputs=back, outputs=(), phase=Phase.BACKWARD))
    once = {i for i in range(count) if not reads[i] or rng.random() < 0.3}
    network = networkx.DiGraph()
    network.add_nodes_from(("source", "sink"))
    for i, read in enumerate(reads):
        network.add_edge(("in", i), ("out", i), capacity=tensors[i].nbytes)
        if i in once:
            network.add_edge("source", ("in", i))
        else:
            network.add_edges_from((("out", t), ("in", i)) for t in read)
    network.add_edges_from((("out", t), "sink") for t in back)
    saved = saved_by_min_cut(Graph(ops=tuple(ops), tensors=tensors), count, once)
    expected = networkx.minimum_cut_value(network, "source", "sink")
    assert sum(tensors[t].nbytes for t in saved) == expected


@pytest.mark.parametrize("seed", range(10))
def test_the_knapsack_is_the_best_of_all_subsets(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(1, 9) for _ in range(8)]
    values = [rng.randint(0, 20) for _ in range(8)]
    capacity = rng.randint(5, 30)
    best = max(
        sum(values[i] for i in items)
        for count in range(9)
        for items in combinations(range(8), count)
        if sum(sizes[i] for i in items) <= capacity
    )
    chosen = fill(sizes, values, capacity)
    assert sum(sizes[i] for i in chosen) <= capacity
    assert sum(values[i] for i in chosen) == best


def test_the_knapsack_runs_a_product_again_where_the_cut_alone_does_not_fit() -> None:
    """Two products, 100 and 10 ns, of 8 bytes each: within the budget only one is kept.

    The input of the backward pass, 1 ns, is no product and runs again as well.
    """
    tensors = tuple(
        Tensor(name=name, nbytes=nbytes, kind=kind)
        for name, nbytes, kind in (
            ("x", 1, Kind.INPUT),
            ("a", 8, Kind.ACTIVATION),
            ("b", 8, Kind.ACTIVATION),
            ("c", 1, Kind.ACTIVATION),
            ("g", 1, Kind.ACTIVATION),
            ("ga", 1, Kind.GRADIENT),
            ("gb", 1, Kind.GRADIENT),
        )
    )
    product = "aten.mm.default"
    ops = (
        Op(name="dear", target=product, inputs=(0,), outputs=(1,), time_ns=100),
        Op(name="cheap", target=product, inputs=(0,), outputs=(2,), time_ns=10),
        Op(name="join", inputs=(0,), outputs=(3,), time_ns=1, workspace_bytes=6),
        Op(name="back", inputs=(3,), outputs=(4,), time_ns=1, phase=Phase.BACKWARD),
        Op(name="b1", inputs=(2, 4), outputs=(6,), time_ns=1, phase=Phase.BACKWARD),
        Op(name="b2", inputs=(1, 4), outputs=(5,), time_ns=1, phase=Phase.BACKWARD),
    )
    problem = Problem(graph=Graph(ops=ops, tensors=tensors), budget_bytes=21)
    assert MinCut().solve(problem, Limits()).status is Status.UNKNOWN
    solution = Knapsack().solve(problem, Limits())
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    assert simulate(problem.graph, solution.schedule).time_ns == 114 + 10 + 1


def test_which_targets_are_compute_intensive() -> None:
    assert is_compute_intensive("aten.mm.default")
    assert is_compute_intensive("aten.convolution.default")
    assert not is_compute_intensive("aten.add.Tensor")
    assert not is_compute_intensive("")
