"""SuperNeurons' two modes on a graph whose runs are counted by hand."""

from __future__ import annotations

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import sequence_of
from memplan.planner.verify import verify
from memplan.solvers.swaps.superneurons import Superneurons, heavy_ops, largest_need


def conv_relu_pool(workspace_bytes: int) -> Graph:
    """x -> conv -> c 2 -> relu -> r 4 -> pool -> p 4; two backward ops read r and p, then r.

    `workspace_bytes` of conv set l_peak; relu and pool make 8 bytes between two checkpoints.
    """
    kinds = {"x": Kind.INPUT, "g2": Kind.GRADIENT}
    sizes = {"x": 1, "c": 2, "r": 4, "p": 4, "l": 1, "g1": 1, "g2": 1}

    def back(name: str, reads: tuple[int, ...], made: int) -> Op:
        return Op(name=name, inputs=reads, outputs=(made,), time_ns=1, phase=Phase.BACKWARD)

    return Graph(
        tensors=tuple(
            Tensor(name=name, nbytes=size, kind=kinds.get(name, Kind.ACTIVATION))
            for name, size in sizes.items()
        ),
        ops=(
            Op(
                name="conv",
                target="aten.convolution.default",
                inputs=(0,),
                outputs=(1,),
                time_ns=10,
                workspace_bytes=workspace_bytes,
            ),
            Op(name="relu", target="aten.relu.default", inputs=(1,), outputs=(2,), time_ns=1),
            Op(name="pool", target="aten.mean.dim", inputs=(2,), outputs=(3,), time_ns=1),
            Op(
                name="wide",
                target="aten.mm.default",
                inputs=(3,),
                outputs=(4,),
                time_ns=1,
                workspace_bytes=9,
            ),
            back("b1", (2, 3, 4), 5),
            back("b2", (2, 5), 6),
        ),
    )


def sequence(graph: Graph, budget_bytes: int) -> tuple[int, ...]:
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    solution = Superneurons().solve(problem, Limits())
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    return sequence_of(solution.schedule)


def test_a_segment_is_recomputed_once_and_kept() -> None:
    """At `wide`, x 1, c 2, p 4, l 1 and 9 of workspace: 17 bytes; with r for c 19.

    As c is a checkpoint, relu and pool run once more, and r serves both backward ops.
    """
    graph = conv_relu_pool(0)
    assert heavy_ops(graph, 4) == {0, 3}
    assert largest_need(graph) == 14
    assert sequence(graph, 17) == (0, 1, 2, 3, 1, 2, 4, 5)


def test_or_it_is_recomputed_for_each_use() -> None:
    """Memory-centric: relu runs for b1 and again for b2; nothing of it outlives a use."""
    graph = conv_relu_pool(0)
    plans = list(Superneurons()._plans(graph))
    assert plans[0] == plans[1] == (0, 1, 2, 3, 1, 2, 4, 5)
    assert plans[2] == (0, 1, 2, 3, 1, 2, 4, 1, 5)
