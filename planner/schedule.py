"""The only output format of every solver: a list of steps, to be replayed in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memplan.graph_capture.graph import Graph


@dataclass(frozen=True, slots=True)
class Compute:
    """Run an operation, by index; a second `Compute` of the same one is a recomputation."""

    op: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Free a tensor's device memory, by index."""

    tensor: int


Step: TypeAlias = Compute | Drop
Schedule: TypeAlias = tuple[Step, ...]


def schedule_of(graph: Graph, sequence: Iterable[int]) -> Schedule:
    """Return the schedule that runs the ops of `sequence` and frees each tensor at once.

    A reader takes the most recent instance of a tensor; an instance is dropped right after the
    last op that reads it, or right after its producer if nobody does. Pinned tensors stay.
    The sequence is not checked: `verify` does that.
    """
    order = list(sequence)
    tensors, ops = graph.tensors, graph.ops
    wanted = [False] * len(tensors)
    drops: list[tuple[int, ...]] = [()] * len(order)
    for j in range(len(order) - 1, -1, -1):
        op = ops[order[j]]
        dead = [t for t in op.outputs if not wanted[t]]
        for t in op.outputs:
            wanted[t] = False
        for t in op.inputs:
            if not wanted[t]:
                dead.append(t)
                wanted[t] = True
        drops[j] = tuple(t for t in dead if not tensors[t].pinned)
    steps: list[Step] = []
    for j, op_index in enumerate(order):
        steps.append(Compute(op_index))
        steps.extend(Drop(t) for t in drops[j])
    return tuple(steps)


def sequence_of(schedule: Sequence[Step]) -> tuple[int, ...]:
    """Return the ops that `schedule` runs, in order, repeats included."""
    return tuple(step.op for step in schedule if isinstance(step, Compute))


def keeps_order(schedule: Sequence[Step]) -> bool:
    """Return whether the first runs of all ops are in the order of the graph."""
    next_op = 0
    for step in schedule:
        if isinstance(step, Compute) and step.op >= next_op:
            if step.op > next_op:
                return False
            next_op += 1
    return True
