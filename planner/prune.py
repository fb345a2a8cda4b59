"""Takes out of a sequence the recomputations that the budget does not need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache

import numpy

from memplan.graph_capture.graph import Graph
from memplan.planner.compiled import Flags, Integers, run
from memplan.planner.step_events import Uses, bytes_in_use, linked, remove_steps, uses_of


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
    return pruned(uses_of(graph), sequence, budget_bytes)


def pruned(uses: Uses, sequence: Sequence[int], budget_bytes: int) -> tuple[int, ...]:
    """Do what `prune` does, by arrays that were made before."""
    lives = Lives(uses, sequence)
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

    def __init__(self, uses: Uses, sequence: Sequence[int]) -> None:
        self.uses = uses
        self.order: Integers = numpy.array(sequence, dtype=numpy.int64)
        self.there: Flags = numpy.ones(len(self.order), dtype=numpy.bool_)
        self._events, self._begins = run(linked, uses, self.order)
        self.live: Integers = run(bytes_in_use, uses, self.order, self._events)

    def prune(self, budget_bytes: int, keep: Collection[int] = ()) -> None:
        """Take out what the budget does not need, but none of the steps `keep`."""
        again = numpy.ones(len(self.order), dtype=numpy.bool_)
        again[numpy.unique(self.order, return_index=True)[1]] = False
        again[list(keep)] = False
        steps = numpy.flatnonzero(again)
        dearest = numpy.argsort(-self.uses.time_ns[self.order[steps]], kind="stable")
        run(
            remove_steps,
            self.uses,
            self._events,
            self._begins,
            self.live,
            self.there,
            steps[dearest],
            budget_bytes,
        )
