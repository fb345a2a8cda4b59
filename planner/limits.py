"""A lower limit on the peak of any schedule, proven from the graph alone."""

from __future__ import annotations

import numpy
import numpy.typing

from memplan.graph_capture.graph import Graph, Phase
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status


def lower_limit(graph: Graph) -> tuple[int, int]:
    """Return bytes that every schedule's peak reaches, and the op at which it does.

    The proof looks at the first run of each op. On the device then are: what the step is given,
    the op's inputs, outputs and workspace, and the pinned outputs of every op that must have run
    before it: its ancestors, with `in_order` the earlier ops so marked, and after the forward
    phase every forward op. Besides, some op is the last to have its first run; everything pinned
    is there then.

    Returns:
        (limit_bytes, op); op is -1 for a graph without ops.
    """
    sizes = [t.nbytes for t in graph.tensors]
    before = _pinned_before(graph)
    pinned_bytes = numpy.array(
        [sum(sizes[t] for t in op.outputs if graph.tensors[t].pinned) for op in graph.ops],
        dtype=numpy.int64,
    )
    every_pinned = int(pinned_bytes.sum())
    limit_bytes, at = graph.given_bytes, -1
    last_bytes, last = None, -1
    for i, op in enumerate(graph.ops):
        own = [t for t in op.inputs if not graph.tensors[t].pinned] + list(op.outputs)
        own_bytes = graph.given_bytes + sum(sizes[t] for t in own) + op.workspace_bytes
        used_bytes = own_bytes + _bytes_of(pinned_bytes, before[i])
        if used_bytes > limit_bytes or at < 0:
            limit_bytes, at = used_bytes, i
        if any(graph.consumers[t] for t in op.outputs):
            continue
        end_bytes = own_bytes - int(pinned_bytes[i]) + every_pinned
        if last_bytes is None or end_bytes < last_bytes:
            last_bytes, last = end_bytes, i
    if last_bytes is not None and last_bytes > limit_bytes:
        return last_bytes, last
    return limit_bytes, at


def below_limit(problem: Problem) -> Solution | None:
    """Return the proof that the budget is below `lower_limit`, or None where it is not."""
    limit_bytes, op = lower_limit(problem.graph)
    if problem.budget_bytes >= limit_bytes:
        return None
    where = f" while {problem.graph.ops[op].name!r} runs" if op >= 0 else ""
    return Solution(
        status=Status.INFEASIBLE,
        minimum_bytes=limit_bytes,
        proven_bound_ns=problem.graph.time_ns,
        reason=f"every schedule needs {limit_bytes:,} bytes{where}",
    )


def settled(problem: Problem) -> Solution | None:
    """Return the answer where none has to be searched: nothing can fit, or everything can stay."""
    if refusal := below_limit(problem):
        return refusal
    graph = problem.graph
    plain = schedule_of(graph, range(len(graph.ops)))
    if simulate(graph, plain).peak_bytes > problem.budget_bytes:
        return None
    return Solution(status=Status.OPTIMAL, schedule=plain, proven_bound_ns=graph.time_ns)


def _pinned_before(graph: Graph) -> list[int]:
    """For each op, the ops with pinned outputs that must run before it, as a set of bits.

    Bit j of entry i is set where op j makes something pinned and has run whenever op i runs for
    the first time.
    """
    makes_pinned = [any(graph.tensors[t].pinned for t in op.outputs) for op in graph.ops]
    forward = sum(
        1 << i for i, op in enumerate(graph.ops) if makes_pinned[i] and op.phase is Phase.FORWARD
    )
    through: list[int] = []
    """As the result, the op itself included."""
    before: list[int] = []
    in_order = 0
    for i, op in enumerate(graph.ops):
        bits = 0 if op.phase is Phase.FORWARD else forward
        for t in op.inputs:
            source = graph.producer[t]
            if source is not None:
                bits |= through[source]
        if op.in_order:
            bits |= in_order
        before.append(bits & ~(1 << i))
        through.append(bits | (1 << i if makes_pinned[i] else 0))
        if op.in_order:
            in_order |= through[i]
    return before


def _bytes_of(pinned_bytes: numpy.typing.NDArray[numpy.int64], bits: int) -> int:
    """Bytes of the pinned outputs of a set of ops; `pinned_bytes`: (ops,) those of each op."""
    if not bits:
        return 0
    ops = len(pinned_bytes)
    packed = numpy.frombuffer(bits.to_bytes(-(-ops // 8), "little"), dtype=numpy.uint8)
    chosen = numpy.unpackbits(packed, count=ops, bitorder="little").astype(bool)
    return int(pinned_bytes[chosen].sum())
