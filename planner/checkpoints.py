"""What it means to keep only some forward tensors: candidates, and the run that follows.

This is the plan shape of "Training Deep Nets with Sublinear Memory Cost" (Chen et al. 2016)
on any graph: after the forward phase only the checkpoints are kept, and the backward phase
recomputes what lies between two of them when it first needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from memplan.errors import UsageError
from memplan.graph_capture.graph import Graph
from memplan.planner.schedule import Compute, schedule_of
from memplan.planner.simulate import simulate


def forward_end(graph: Graph) -> int:
    """Return how many of the first ops count as forward.

    That is `graph.boundary`. Where no op is marked as backward, it is the op at which keeping
    everything peaks: in a training step that is close to the loss.
    """
    if graph.boundary < len(graph.ops) or not graph.ops:
        return graph.boundary
    schedule = schedule_of(graph, range(len(graph.ops)))
    peak_step = simulate(graph, schedule).peak_step
    return sum(isinstance(step, Compute) for step in schedule[:peak_step])


def articulation_ops(graph: Graph, end: int) -> tuple[int, ...]:
    """Return the forward ops without which the forward graph falls apart, in order."""
    import networkx

    forward = graph.networkx().subgraph(range(end)).to_undirected()
    return tuple(sorted(networkx.articulation_points(forward)))


CANDIDATES = ("both", "articulation", "all")
"""Among which forward ops checkpoints are chosen, as `candidate_ops` reads it."""


def check_candidates(which: str) -> None:
    """Refuse what is none of `CANDIDATES`.

    Raises:
        UsageError: It is none.
    """
    if which not in CANDIDATES:
        raise UsageError(f"no candidates {which!r}; choose {', '.join(CANDIDATES)}")


def candidate_ops(graph: Graph, end: int, which: str) -> tuple[tuple[int, ...], ...]:
    """Return the sets of forward ops to choose from: articulation points, all, or each of both."""
    some = () if which == "all" else (articulation_ops(graph, end),)
    return some if which == "articulation" else (*some, tuple(range(end)))


def sequence_keeping(graph: Graph, checkpoints: Collection[int], end: int) -> tuple[int, ...]:
    """Return the ops to run if of the forward tensors only those of `checkpoints` are kept.

    Kept as well is what comes after the last checkpoint, because the backward phase starts
    there, and what can never be made again. Anything else is recomputed once, when an op from
    `end` on first needs it, and then stays until none needs it any more.

    Args:
        graph: The step.
        checkpoints: Ops whose outputs are kept.
        end: Number of forward ops.
    """
    from_here = max(checkpoints, default=end - 1)
    lost = [False] * len(graph.tensors)
    for i in range(end):
        op = graph.ops[i]
        if i < from_here and i not in checkpoints and op.recomputable:
            for t in op.outputs:
                lost[t] = not graph.tensors[t].pinned
    return sequence_losing(graph, lost, end)


def sequence_losing(graph: Graph, lost: Sequence[bool], end: int) -> tuple[int, ...]:
    """Return the ops to run if the forward tensors that are `lost` are not kept.

    Each is made once more when an op from `end` on first needs it, and then stays until none
    needs it any more.

    Args:
        graph: The step.
        lost: For each tensor whether it goes after its last use before `end`; true only of what
            can be made again.
        end: Number of forward ops.
    """
    last_need = _last_need(graph, lost, end)
    order = list(range(end))
    missing = list(lost)
    held: list[int] = []
    for v in range(end, len(graph.ops)):
        _make_inputs(graph, v, missing, held, order)
        order.append(v)
        for t in held:
            missing[t] = last_need[t] <= v
        held = [t for t in held if not missing[t]]
    return tuple(order)


def _last_need(graph: Graph, lost: Sequence[bool], end: int) -> list[int]:
    """For each lost tensor the last op from `end` on that reads it or what is made from it."""
    last = [-1] * len(graph.tensors)
    for i in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[i]
        need = i if i >= end else max((last[t] for t in op.outputs if lost[t]), default=-1)
        for t in op.inputs:
            if lost[t]:
                last[t] = max(last[t], need)
    return last


def _make_inputs(
    graph: Graph, v: int, missing: list[bool], held: list[int], order: list[int]
) -> None:
    """Append to `order` whatever makes the missing inputs of op `v`; record it in `held`."""
    stack = [v]
    while stack:
        op_index = stack[-1]
        absent = [t for t in graph.ops[op_index].inputs if missing[t]]
        if absent:
            source = graph.producer[absent[0]]
            assert source is not None
            stack.append(source)
            continue
        stack.pop()
        if op_index == v:
            return
        order.append(op_index)
        for t in graph.ops[op_index].outputs:
            if missing[t]:
                missing[t] = False
                held.append(t)
