"""The inner loop of exchanges, compiled: see `_exchange` for what they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy

from memplan.planner.compiled import Integers, compiled
from memplan.planner.step_events import (
    BEFORE,
    MADE,
    STEP,
    TENSOR,
    Uses,
    bytes_in_use,
    is_last,
    linked,
    peak_without,
    remove_steps,
)

_ANY = 1 << 62
"""More bytes than there are."""

_LONGEST = 40
"""Ops that one tensor may take to make again; longer chains never paid."""


class Steps(NamedTuple):
    """A sequence, and what is known of it.

    Attributes:
        order: (steps,) the op of each.
        events: See `linked`.
        begins: See `linked`.
        repeats: Steps that run an op again, the most expensive first.
        worst: For each of these, the step at which the most would be in use without it.
        lacking_bytes: For each, what lacks then.
    """

    order: Integers
    events: Integers
    begins: Integers
    repeats: Integers
    worst: Integers
    lacking_bytes: Integers


@compiled
def next_exchange(
    uses: Uses, order: Integers, budget_bytes: int, start: int, fuel: int
) -> tuple[Integers, int]:
    """Look for an exchange that saves time, before step `start` or one after it.

    Args:
        uses: The graph.
        order: (steps,) ops to run; valid, within the budget, and pruned.
        budget_bytes: The peak that must not be passed.
        start: The first step before which something may run.
        fuel: How many steps to look at before a look at the clock.

    Returns:
        The new order, nothing where none was found, and the step to go on from, -1 where there is
        no further one.
    """
    steps = _steps(uses, order, budget_bytes)
    latest = numpy.full(len(uses.sizes), -1, dtype=numpy.int64)
    chain = numpy.empty(_LONGEST, dtype=numpy.int64)
    for j in range(len(order)):
        if j >= start:
            if fuel <= 0:
                return order[:0], j
            for event in range(steps.begins[j], steps.begins[j + 1]):
                before = steps.events[BEFORE, event]
                if steps.events[MADE, event] or steps.events[STEP, before] >= j - 1:
                    continue
                ops = _chain(uses, steps.events, latest, chain, steps.events[TENSOR, event])
                since = steps.events[STEP, before]
                fuel -= len(steps.repeats)
                if ops == 0 or not _may_pay(uses, steps, since, j, chain[:ops]):
                    continue
                fuel -= len(order)
                other = _exchanged(uses, steps, budget_bytes, j, chain[:ops])
                if len(other) > 0:
                    return other, j
        for event in range(steps.begins[j], steps.begins[j + 1]):
            latest[steps.events[TENSOR, event]] = event
    return order[:0], -1


@compiled
def _steps(uses: Uses, order: Integers, budget_bytes: int) -> Steps:
    events, begins = linked(uses, order)
    live = bytes_in_use(uses, order, events)
    repeats = _repeats(uses, order)
    worst, lacking_bytes = numpy.empty_like(repeats), numpy.empty_like(repeats)
    for i in range(len(repeats)):
        peak_bytes, worst[i] = peak_without(uses, events, begins, live, repeats[i], _ANY)
        lacking_bytes[i] = peak_bytes - budget_bytes
    return Steps(order, events, begins, repeats, worst, lacking_bytes)


@compiled
def _repeats(uses: Uses, order: Integers) -> Integers:
    """Return the steps that run an op again, the most expensive first."""
    seen = numpy.zeros(len(uses.time_ns), dtype=numpy.bool_)
    again = numpy.empty(len(order), dtype=numpy.bool_)
    for j in range(len(order)):
        again[j] = seen[order[j]]
        seen[order[j]] = True
    repeats = numpy.flatnonzero(again)
    return repeats[numpy.argsort(-uses.time_ns[order[repeats]], kind="mergesort")]


@compiled
def _chain(uses: Uses, events: Integers, latest: Integers, chain: Integers, wanted: int) -> int:
    """Write into `chain` the ops that make `wanted` from what is there.

    Args:
        uses: The graph.
        events: See `linked`.
        latest: (tensors,) the latest event of each so far.
        chain: Room for the ops.
        wanted: A tensor.

    Returns:
        How many ops there are; 0 where it cannot be made again, or only by too many.
    """
    stack = numpy.empty(_LONGEST, dtype=numpy.int64)
    stack[0], depth, count = uses.producer[wanted], 1, 0
    while depth > 0:
        op = stack[depth - 1]
        if op < 0 or count == _LONGEST:
            return 0
        lacking = _lacking(uses, events, latest, chain[:count], op)
        if lacking < 0:
            chain[count] = op
            count += 1
            depth -= 1
        elif depth == _LONGEST:
            return 0
        else:
            stack[depth] = uses.producer[lacking]
            depth += 1
    return count


@compiled
def _lacking(uses: Uses, events: Integers, latest: Integers, chain: Integers, op: int) -> int:
    """Return an input of `op` that is not there and not made by `chain`; -1 where all are."""
    for i in range(uses.starts[2 * op], uses.starts[2 * op + 1]):
        t = uses.items[i]
        if is_last(events, latest[t]) and not (chain == uses.producer[t]).any():
            return int(t)
    return -1


@compiled
def _may_pay(uses: Uses, steps: Steps, since: int, j: int, chain: Integers) -> bool:
    """Whether `chain` takes less than what its last output alone makes room for."""
    last = chain[-1]
    begin, end = uses.starts[2 * last + 1], uses.starts[2 * last + 2]
    freed_bytes = uses.sizes[uses.items[begin:end]].sum()
    left_ns = uses.time_ns[chain].sum()
    for i in range(len(steps.repeats)):
        if since < steps.worst[i] < j and steps.lacking_bytes[i] <= freed_bytes:
            left_ns -= uses.time_ns[steps.order[steps.repeats[i]]]
            if left_ns < 0:
                return True
    return False


@compiled
def _exchanged(uses: Uses, steps: Steps, budget_bytes: int, j: int, chain: Integers) -> Integers:
    """Run `chain` before step `j`, and nothing again that fits without.

    Args:
        uses: The graph.
        steps: The sequence.
        budget_bytes: The peak that must not be passed.
        j: See above.
        chain: Ops.

    Returns:
        (steps,) the ops to run if that takes less time, else nothing.
    """
    more = len(chain)
    order = numpy.concatenate((steps.order[:j], chain, steps.order[j:]))
    events, begins = linked(uses, order)
    live = bytes_in_use(uses, order, events)
    if live[j : j + more].max() > budget_bytes:
        return order[:0]
    there = numpy.ones(len(order), dtype=numpy.bool_)
    # The last of the chain is what the exchange is about.
    there[j + more - 1] = False
    candidates = _repeats(uses, order)
    candidates = candidates[there[candidates]]
    there[j + more - 1] = True
    remove_steps(uses, events, begins, live, there, candidates, budget_bytes)
    saved_ns = -uses.time_ns[chain].sum()
    for k in candidates:
        if not there[k]:
            saved_ns += uses.time_ns[order[k]]
    return order[there] if saved_ns > 0 else order[:0]
