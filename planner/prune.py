"""Takes out of a sequence the recomputations that the budget does not need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache

import numpy

from memplan.graph_capture.graph import Graph, Op
from memplan.planner._prune_kernel import bytes_in_use, linked, remove_steps
from memplan.planner.compiled import Flags, Integers, integers


@cache
def prepare() -> None:
    """Compile what is needed where this installation never did, outside of any time limit."""
    prune(Graph(ops=(), tensors=()), (), 0)


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
    return Pruner(graph).prune(sequence, budget_bytes)


class Pruner:
    """What pruning asks of a graph; built once for many sequences.

    Attributes:
        sizes: (tensors,) bytes.
        time_ns: (ops,)
        own_bytes: (2, ops) what only the op itself takes while it runs: its workspace, and in
            the second row the pinned outputs that a second run makes beside the first ones.
        starts: (2 ops + 1,) where the freeable inputs, then the freeable outputs of each op
            begin in `items`.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        tensors, ops = graph.tensors, graph.ops
        rows = [[t for t in row if not tensors[t].pinned] for op in ops for row in _uses(op)]
        pinned = [[t for t in op.outputs if tensors[t].pinned] for op in ops]
        self.sizes = integers(t.nbytes for t in tensors)
        self.time_ns = integers(op.time_ns for op in ops)
        self.own_bytes = numpy.array(
            (
                [op.workspace_bytes for op in ops],
                [sum(tensors[t].nbytes for t in outputs) for outputs in pinned],
            ),
            dtype=numpy.int64,
        )
        self.starts = numpy.cumsum([0, *map(len, rows)], dtype=numpy.int64)
        self.items = integers(t for row in rows for t in row)

    def prune(self, sequence: Sequence[int], budget_bytes: int) -> tuple[int, ...]:
        """Do what the function `prune` does."""
        lives = Lives(self, sequence)
        lives.prune(budget_bytes)
        return tuple(lives.order[lives.there].tolist())


class Lives:
    """Who reads which instance of each tensor, and the bytes in use at every step.

    An instance lives from the step that makes it until its last reader, or for one step if it has
    none. Steps keep their number when others are taken out.

    Attributes:
        order: (steps,) the op of each.
        live: (steps,) bytes in use while each runs.
        there: (steps,) whether it was not taken out.
    """

    def __init__(self, pruner: Pruner, sequence: Sequence[int]) -> None:
        self.pruner = pruner
        self.order: Integers = numpy.array(sequence, dtype=numpy.int64)
        self.there: Flags = numpy.ones(len(self.order), dtype=numpy.bool_)
        self._events, self._begins = linked(
            self.order, pruner.starts, pruner.items, len(pruner.sizes)
        )
        self.live = bytes_in_use(
            self.order, self._events, pruner.sizes, pruner.own_bytes, pruner.graph.given_bytes
        )

    def prune(self, budget_bytes: int, keep: Collection[int] = ()) -> None:
        """Take out what the budget does not need, but none of the steps `keep`."""
        again = numpy.ones(len(self.order), dtype=numpy.bool_)
        again[numpy.unique(self.order, return_index=True)[1]] = False
        again[list(keep)] = False
        steps = numpy.flatnonzero(again)
        dearest = numpy.argsort(-self.pruner.time_ns[self.order[steps]], kind="stable")
        pruner = self.pruner
        remove_steps(
            self._events,
            self._begins,
            pruner.sizes,
            self.live,
            self.there,
            steps[dearest],
            budget_bytes,
        )


def _uses(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return op.inputs, op.outputs
