"""Coop and MegTaiChi: places in an arena, and evictions that leave one hole in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph import Graph, Op, Phase, Tensor
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solver
from memplan.planner.verify import verify
from memplan.solvers.online._addresses import Arena
from memplan.solvers.online.coop import Coop
from memplan.solvers.online.dtr import Dtr
from memplan.solvers.online.megtaichi import Megtaichi
from tests.graphs import INSTANCES, tight_problems


def arena() -> Arena:
    """10 bytes: 0 1 | hole 2 | 3 4 5 | hole 6 7 8 | 9."""
    made = Arena(10)
    made.blocks = [(0, 2, 7), (3, 3, 8), (9, 1, 9)]
    return made


def test_the_holes_of_an_arena() -> None:
    assert list(arena().holes()) == [(2, 1), (6, 3)]
    assert list(Arena(4).holes()) == [(0, 4)]
    assert [arena().free_beside(owner) for owner in (7, 8, 9)] == [1, 4, 3]


@pytest.mark.parametrize(
    ("nbytes", "from_right", "best_fit", "offset"),
    [(1, False, False, 2), (1, True, False, 8), (1, False, True, 2), (3, False, True, 6)],
)
def test_where_a_block_goes(nbytes: int, from_right: bool, best_fit: bool, offset: int) -> None:
    memory = arena()
    assert memory.place(5, nbytes, from_right, best_fit)
    assert (offset, nbytes, 5) in memory.blocks
    assert memory.blocks == sorted(memory.blocks)


def test_what_does_not_fit_in_one_piece_has_no_place() -> None:
    memory = arena()
    assert not memory.place(5, 4, False, True)
    memory.free(8)
    assert memory.place(5, 4, False, True)


def islands() -> Graph:
    """Four tensors of 2 bytes fill the arena; `wide` needs 4 bytes in one piece.

    By cost for bytes and staleness p and r are the cheapest, but they are no neighbours: p, q, r,
    s lie in this order, and q takes 2 ns, s 100 ns.
    """
    times_ns = {"p": 1, "q": 2, "r": 1, "s": 100}
    ops = [
        Op(name=name, inputs=(), outputs=(t,), time_ns=time_ns)
        for t, (name, time_ns) in enumerate(times_ns.items())
    ]
    ops.append(Op(name="pause", inputs=(), outputs=(), time_ns=1000))
    ops.append(Op(name="wide", inputs=(), outputs=(4,), time_ns=1))
    ops.append(Op(name="end", inputs=(0, 1, 2, 3), outputs=(), time_ns=1, phase=Phase.BACKWARD))
    tensors = [Tensor(name=name, nbytes=2) for name in times_ns]
    return Graph(ops=tuple(ops), tensors=(*tensors, Tensor(name="w", nbytes=4)))


def again(solver: Solver, budget_bytes: int) -> list[int]:
    """Return what runs a second time in `islands`."""
    problem = Problem(graph=islands(), budget_bytes=budget_bytes)
    solution = solver.solve(problem, Limits())
    assert solution.schedule is not None, solution.reason
    verify(problem, solution.schedule)
    sequence = list(sequence_of(solution.schedule))
    for op in range(len(problem.graph.ops)):
        sequence.remove(op)
    return sorted(sequence)


def test_coop_evicts_neighbours_where_dtr_leaves_two_islands() -> None:
    """p, q and r lie at the left, where what is cheap goes; s, which is dear, at the right."""
    assert again(Dtr(), 8) == [0, 2]
    assert again(Coop(), 8) in ([0, 1], [1, 2])


def test_megtaichi_prefers_what_lies_beside_a_hole() -> None:
    """After p: q has 2 bytes and 2 free beside it, (1 + 2) / 4, and r (1 + 1) / 2."""
    assert again(Megtaichi(), 8) == [0, 1]


@pytest.mark.parametrize("solver", [Coop(), Megtaichi()], ids=lambda solver: solver.name)
@settings(deadline=None, max_examples=100)
@given(problem=tight_problems())
def test_every_trace_is_valid(solver: Solver, problem: Problem) -> None:
    solution = solver.solve(problem, Limits())
    if solution.schedule is not None:
        verify(problem, solution.schedule)


@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
@pytest.mark.parametrize("solver", [Coop(), Megtaichi()], ids=lambda solver: solver.name)
def test_equal_layers_leave_no_fragments(solver: Solver) -> None:
    """ResNet-32: tensors of few sizes, so that addresses change nothing over DTR at 60 %."""
    graph = read_graph(INSTANCES / "dtr" / "resnet32.json")
    peak_bytes = simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes
    problem = Problem(graph=graph, budget_bytes=peak_bytes * 60 // 100)
    solution = solver.solve(problem, Limits())
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    extra = 100 * (simulate(graph, solution.schedule).time_ns / graph.time_ns - 1)
    assert extra == pytest.approx(7.37, abs=0.11)
