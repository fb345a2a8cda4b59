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


@dataclass(frozen=True, slots=True)
class SwapOut:
    """Start to write a tensor to a tier, both by index; it stays readable until its `Wait`."""

    tensor: int
    tier: int = 0


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Take device memory for a tensor that was swapped out, and start to read it."""

    tensor: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the transfer of a tensor ends.

    After a write its device memory is free, after a read it can be used. As memory is freed here
    and not when the write happens to end, it does not depend on how fast the tier is today.
    """

    tensor: int


Step: TypeAlias = Compute | Drop | SwapOut | Prefetch | Wait
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


def with_drops(graph: Graph, steps: Iterable[Step]) -> Schedule:
    """Return `steps` with each tensor dropped at once, as `schedule_of` does; also with swaps.

    Drops in `steps` are left out first. An instance that is swapped out needs no drop: its
    memory is free after the `Wait`. One that is read back is dropped after its last reader.
    """
    order = [step for step in steps if not isinstance(step, Drop)]
    reading: set[int] = set()
    after_read = [False] * len(order)
    for j, step in enumerate(order):
        if isinstance(step, Prefetch):
            reading.add(step.tensor)
        elif isinstance(step, Wait) and step.tensor in reading:
            reading.remove(step.tensor)
            after_read[j] = True
    wanted = [False] * len(graph.tensors)
    dead: list[list[int]] = [[] for _ in order]
    for j in range(len(order) - 1, -1, -1):
        step = order[j]
        made: tuple[int, ...] = ()
        read: tuple[int, ...] = ()
        if isinstance(step, Compute):
            made, read = graph.ops[step.op].outputs, graph.ops[step.op].inputs
        elif isinstance(step, Wait) and after_read[j]:
            made = (step.tensor,)
        elif isinstance(step, Wait):
            wanted[step.tensor] = True
        dead[j] += [t for t in made if not wanted[t]]
        for t in made:
            wanted[t] = False
        for t in read:
            if not wanted[t]:
                dead[j].append(t)
                wanted[t] = True
    complete: list[Step] = []
    for step, gone in zip(order, dead, strict=True):
        complete.append(step)
        complete.extend(Drop(t) for t in gone if not graph.tensors[t].pinned)
    return tuple(complete)


def swaps_in(schedule: Iterable[Step]) -> bool:
    """Return whether `schedule` moves anything."""
    return any(isinstance(step, SwapOut) for step in schedule)


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
