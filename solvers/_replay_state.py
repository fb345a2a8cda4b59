"""Where the compiled replay keeps its state, and what it asks of the graph: see `_replay_kernel`.

Tensors and ops are numbers; lists of lists are two arrays, as in a compressed sparse row: the
items of row `i` are `items[starts[i]:starts[i + 1]]`. The arrays are few and large because the
time that numba takes to compile grows with the number of arrays that functions hand on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from memplan.planner.compiled import Floats, Integers

SIZE, PRODUCER = range(2)
"""Rows of `Work.tensors`: bytes; the op that makes it again, -1 for what is given."""

TIME_NS, RECOMPUTABLE, RUNNING_BYTES, PINNED_BYTES = range(4)
"""Rows of `Work.ops`. An op takes its running bytes while it runs, beside what is there; its first
run adds its pinned bytes for good."""

NOW, RAN, PENDING, MOST_NOW, USED, EXTRA, STAMP, THERE, FUEL, COUNTS = range(10)
"""Places in `State.counts`: the op that runs for the first time; the runs so far; how many ops
wait for inputs; how many runs there may be before the current op has run; bytes in use; extra ns;
the latest mark; how many movable tensors are there; how many elements may be looked at before the
next look at the clock. The last is their number."""

RESIDENT, LOCKS, STALE, DUE, NEXT_USE, CURSOR = range(6)
"""Rows of `State.tensors`: whether it is there, always so where it is not movable; how many
pending ops need it; whether its lowest price may be too low; op of the next use, 2 ops where there
is none; the same, with the number of ops instead; how many readers have run."""

LISTED, PLACE, MARK, PRICED, FOUND, GONE, TENSOR_ROWS = range(6, 13)
"""Further ones: the movable tensors that are there, in any order, and where each is in that list;
the latest search that came by; the latest choice that found its true price; two for what functions
find. The last is their number."""

LEAST_NS, VALUE, SCORE, PRICE_ROWS = range(4)
"""Rows of `State.prices`: a lower bound on the cost of making it again; what it is worth by the
rule, before the distance; the same, infinite where it may not go."""

PENDING_OP, OP_MARK, OP_ROWS = range(3)
"""Rows of `State.ops`: those that wait for inputs, the innermost last; the latest search."""

NEVER = math.inf


class Work(NamedTuple):
    """What a replay asks of the graph; ops beyond the graph's are other ways to make a tensor.

    Attributes:
        tensors: (2, tensors), see `SIZE`.
        ops: (4, ops), see `TIME_NS`.
        starts: (2 ops + tensors + 1,) where the items of each row begin. The first rows are the
            movable inputs of each op, then its movable outputs, then the readers of each tensor.
        items: The rows one after the other.
    """

    tensors: Integers
    ops: Integers
    starts: Integers
    items: Integers


class Rule(NamedTuple):
    """The score of a tensor, and where a run has to end.

    Attributes:
        divisor: (tensors,) by which the cost of making it again is divided.
        nearness: (2 ops + 1,) factor by the distance to the next use.
        cost: Exponent of the cost.
        newest_first: Whether missing inputs are made from the last to the first.
        budget_bytes: What may be in use at once.
        most_extra_ns: A run that costs more is given up.
        most_runs: A run of more ops is given up.
        circles: For one op at most so many recomputations per op before it, and `few_runs` more;
            negative for any number.
        few_runs: See `circles`.
    """

    divisor: Floats
    nearness: Floats
    cost: float
    newest_first: bool
    budget_bytes: int
    most_extra_ns: float
    most_runs: int
    circles: int
    few_runs: int


class State(NamedTuple):
    """Where a run is.

    Attributes:
        counts: (COUNTS,) see `NOW`.
        tensors: (TENSOR_ROWS, tensors) see `RESIDENT`.
        prices: (PRICE_ROWS, tensors) see `LEAST_NS`.
        ops: (OP_ROWS, ops) see `PENDING_OP`.
        order: The ops that ran; the first `counts[RAN]` entries hold.
        stack: Room for searches.
    """

    counts: Integers
    tensors: Integers
    prices: Floats
    ops: Integers
    order: Integers
    stack: Integers
