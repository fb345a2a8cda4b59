from __future__ import annotations

import time

import pytest
from hypothesis import given, settings

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from memplan.solvers import _rounding
from memplan.solvers._proof import Prover
from memplan.solvers._rounding import rounded
from tests.graphs import tight_problems


def residual(blocks: int) -> Graph:
    """Return a chain of blocks h' = h + norm(conv(h)), in which only conv takes long.

    Tensors of a block: its conv, norm and h; the backward op of each reads all three, and h
    before. To make the last h again, all norms and h have to be made again.
    """
    tensors = [Tensor(name="h0", nbytes=4, kind=Kind.INPUT)]
    ops, phase = [], Phase.BACKWARD
    for k in range(blocks):
        conv = len(tensors)
        tensors += [Tensor(name=f"{name}{k + 1}", nbytes=4) for name in ("conv", "norm", "h")]
        reads = {"conv": (conv - 1,), "norm": (conv,), "h": (conv - 1, conv + 1)}
        for n, (name, inputs) in enumerate(reads.items()):
            time_ns = 100 if name == "conv" else 1
            op = Op(name=f"{name}{k + 1}", inputs=inputs, outputs=(conv + n,), time_ns=time_ns)
            ops.append(op)
    for k in range(blocks, 0, -1):
        read = tuple(range(3 * k - 3, 3 * k + 1))
        before = () if k == blocks else (len(tensors) - 1,)
        made = (len(tensors),)
        tensors.append(Tensor(name=f"g{k}", nbytes=4))
        ops.append(Op(name=f"b{k}", inputs=read + before, outputs=made, time_ns=100, phase=phase))
    return Graph(ops=tuple(ops), tensors=tuple(tensors))


def extra_ns(graph: Graph, sequence: tuple[int, ...]) -> int:
    return simulate(graph, schedule_of(graph, sequence)).time_ns - graph.time_ns


def found(problem: Problem) -> list[tuple[int, ...]]:
    prover = Prover(problem, Limits())
    return list(rounded(problem, prover, time.monotonic() + 30))


@settings(deadline=None, max_examples=150)
@given(tight_problems())
def test_what_it_yields_fits(problem: Problem) -> None:
    for sequence in found(problem):
        verify(problem, schedule_of(problem.graph, sequence))


def test_checkpoints_break_a_long_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    # 24 x 12 bytes; what takes long fits, but not everything else at once.
    problem = Problem(graph=residual(24), budget_bytes=140)
    best = min(found(problem), key=lambda sequence: extra_ns(problem.graph, sequence))
    assert extra_ns(problem.graph, best) < 300
    monkeypatch.setattr(_rounding, "_SEGMENTS", (1,))
    assert not found(problem)


def test_the_first_look_proves_a_bound() -> None:
    problem = Problem(graph=residual(12), budget_bytes=100)
    prover = Prover(problem, Limits())
    assert next(rounded(problem, prover, time.monotonic() + 30))
    bound_ns = prover.proof(time.monotonic()).bound_ns
    plain = Prover(problem, Limits())
    plain.look(1.0, 30.0)
    assert problem.graph.time_ns < bound_ns == plain.proof(time.monotonic()).bound_ns
