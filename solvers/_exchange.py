"""Exchanges recomputations of a sequence for cheaper ones, one against others.

An exchange lets a tensor go between two reads and makes it again, with what that takes, right
before the second. What is free meanwhile may keep other tensors that were made again so far. It is
worth it where those took longer. Replays find schedules that are good as a whole, exchanges repair
what is amiss in places.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy

from memplan.planner.compiled import Integers, run
from memplan.planner.step_events import Uses
from memplan.solvers._exchange_kernel import next_exchange

_FUEL = 2_000_000
"""Steps looked at between two looks at the clock; some ten milliseconds."""


def exchanged(
    uses: Uses, sequence: Sequence[int], budget_bytes: int, deadline: float
) -> tuple[int, ...]:
    """Return a sequence to which no exchange is left that saves time, or what the time allows.

    Args:
        uses: The graph.
        sequence: Ops to run; valid, within the budget, and pruned.
        budget_bytes: The peak that must not be passed.
        deadline: When to end, by `time.monotonic`.
    """
    order: Integers = numpy.array(sequence, dtype=numpy.int64)
    at, found = 0, False
    while time.monotonic() < deadline:
        other, at = run(next_exchange, uses, order, budget_bytes, max(at, 0), _FUEL)
        if len(other) > 0:
            order, found = other, True
        if at < 0:
            if not found:
                break
            found = False
    return tuple(order.tolist())
