"""Takes out of a sequence the recomputations that the budget does not need."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy

from memplan.graph_capture.graph import Graph

_GONE = -(1 << 62)
"""Live bytes of a step that was taken out: far below any budget."""


def prune(graph: Graph, sequence: Sequence[int], budget_bytes: int) -> tuple[int, ...]:
    """Return `sequence` without recomputations, as long as its peak stays within the budget.

    The most expensive recomputation goes first. Without it, each reader takes the instance
    before, which lives longer; the inputs of the recomputation live less long. Only the steps
    between are looked at, so that one attempt costs the length of that stretch.

    Args:
        graph: The step.
        sequence: Ops to run, repeats included; valid, and within the budget.
        budget_bytes: The peak that must not be passed.
    """
    lives = Lives(graph, sequence)
    runs = lives.repeats()
    while True:
        left = [j for j in runs if not lives.remove(j, budget_bytes)]
        if len(left) == len(runs):
            return tuple(op for op, there in zip(sequence, lives.there, strict=True) if there)
        runs = left


class Lives:
    """Who reads which instance of each tensor, and the bytes in use at every step.

    An instance is (tensor, step that makes it). It lives until its last reader, or for one step
    if it has none. Steps keep their number when others are taken out.
    """

    def __init__(self, graph: Graph, sequence: Sequence[int]) -> None:
        self.graph, self.sequence = graph, sequence
        self.there = [True] * len(sequence)
        self.made: list[list[int]] = [[] for _ in graph.tensors]
        """For each freeable tensor the steps that make it, in order."""
        self.readers: dict[tuple[int, int], list[int]] = {}
        freeable = [not t.pinned for t in graph.tensors]
        self.inputs = [tuple(t for t in op.inputs if freeable[t]) for op in graph.ops]
        self.outputs = [tuple(t for t in op.outputs if freeable[t]) for op in graph.ops]
        for j, op in enumerate(sequence):
            for t in self.inputs[op]:
                self.readers[t, self.made[t][-1]].append(j)
            for t in self.outputs[op]:
                self.made[t].append(j)
                self.readers[t, j] = []
        self.live = self._live_bytes()

    def _live_bytes(self) -> numpy.typing.NDArray[numpy.int64]:
        """(steps,) bytes in use while each step runs."""
        graph = self.graph
        change = [0] * (len(self.sequence) + 1)
        change[0] = graph.given_bytes
        own = []
        seen: set[int] = set()
        for j, op_index in enumerate(self.sequence):
            op = graph.ops[op_index]
            pinned_bytes = sum(
                graph.tensors[t].nbytes for t in op.outputs if graph.tensors[t].pinned
            )
            own.append(op.workspace_bytes + (pinned_bytes if op_index in seen else 0))
            if op_index not in seen:
                change[j] += pinned_bytes
                seen.add(op_index)
        for (t, j), readers in self.readers.items():
            change[j] += graph.tensors[t].nbytes
            change[(readers[-1] if readers else j) + 1] -= graph.tensors[t].nbytes
        return numpy.cumsum(change[:-1], dtype=numpy.int64) + numpy.array(own, dtype=numpy.int64)

    def repeats(self) -> list[int]:
        """Steps that run an op again, the most expensive first."""
        seen: set[int] = set()
        found = []
        for j, op in enumerate(self.sequence):
            if op in seen:
                found.append(j)
            seen.add(op)
        return sorted(found, key=lambda j: (-self.graph.ops[self.sequence[j]].time_ns, j))

    def remove(self, j: int, budget_bytes: int) -> bool:
        """Take step `j` out if the peak stays within the budget; return whether it was."""
        op = self.sequence[j]
        changes: list[tuple[int, int, int]] = []
        for t in self.outputs[op]:
            if self.readers[t, j]:
                before = self.made[t][bisect_left(self.made[t], j) - 1]
                end = (self.readers[t, before] or [before])[-1]
                changes.append((end + 1, j, self.graph.tensors[t].nbytes))
        for t in self.inputs[op]:
            made = self.made[t][bisect_left(self.made[t], j) - 1]
            readers = self.readers[t, made]
            if readers[-1] == j:
                end = readers[-2] if len(readers) > 1 else made
                changes.append((end + 1, j + 1, -self.graph.tensors[t].nbytes))
        if not self._fits(j, changes, budget_bytes):
            return False
        self._apply(j, changes)
        return True

    def _fits(self, j: int, changes: list[tuple[int, int, int]], budget_bytes: int) -> bool:
        begin = min((start for start, _, nbytes in changes if nbytes > 0), default=j)
        if begin >= j:
            return True
        stretch = self.live[begin:j].copy()
        for start, stop, nbytes in changes:
            stretch[max(0, start - begin) : max(0, stop - begin)] += nbytes
        return int(stretch.max()) <= budget_bytes

    def _apply(self, j: int, changes: list[tuple[int, int, int]]) -> None:
        op = self.sequence[j]
        for t in self.outputs[op]:
            at = bisect_left(self.made[t], j)
            self.readers[t, self.made[t][at - 1]] += self.readers.pop((t, j))
            del self.made[t][at]
        for t in self.inputs[op]:
            made = self.made[t][bisect_left(self.made[t], j) - 1]
            self.readers[t, made].remove(j)
        for start, stop, nbytes in changes:
            self.live[start:stop] += nbytes
        self.live[j] = _GONE
        self.there[j] = False
