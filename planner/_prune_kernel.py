"""The inner loops of pruning, compiled: see `prune` for what they do.

An event is one read or making of a freeable tensor by a step. The events of a tensor are a doubly
linked list in the order of the steps, so that taking a step out is unlinking its events: what read
its output reads the instance before from then on.
"""

from __future__ import annotations

import numpy

from memplan.planner.compiled import Flags, Integers, compiled

STEP, TENSOR, MADE, BEFORE, AFTER, EVENT_ROWS = range(6)
"""Rows of events: the step; the tensor; whether the step makes it, rather than reads it; the
tensor's event before and after, or -1. The last is the number of rows."""

GONE = -(1 << 62)
"""Bytes in use at a step that was taken out: far below any budget."""


@compiled
def linked(
    order: Integers, starts: Integers, items: Integers, tensors: int
) -> tuple[Integers, Integers]:
    """Return the events of all steps, and where those of each step begin.

    Args:
        order: (steps,) the op of each.
        starts: Where the inputs of op `i` begin in `items`, at `2 i`, and its outputs, after that.
        items: Freeable tensors.
        tensors: How many tensors there are.

    Returns:
        (EVENT_ROWS, events) and (steps + 1,).
    """
    begins = numpy.zeros(len(order) + 1, dtype=numpy.int64)
    for j in range(len(order)):
        op = order[j]
        begins[j + 1] = begins[j] + starts[2 * op + 2] - starts[2 * op]
    events = numpy.empty((EVENT_ROWS, begins[-1]), dtype=numpy.int64)
    latest = numpy.full(tensors, -1, dtype=numpy.int64)
    for j in range(len(order)):
        op = order[j]
        for i in range(starts[2 * op], starts[2 * op + 2]):
            event, t = begins[j] + i - starts[2 * op], items[i]
            events[STEP, event], events[TENSOR, event] = j, t
            events[MADE, event] = i >= starts[2 * op + 1]
            events[BEFORE, event], events[AFTER, event] = latest[t], -1
            if latest[t] >= 0:
                events[AFTER, latest[t]] = event
            latest[t] = event
    return events, begins


@compiled
def bytes_in_use(
    order: Integers, events: Integers, sizes: Integers, own_bytes: Integers, given_bytes: int
) -> Integers:
    """Return (steps,) the bytes in use while each step runs.

    Args:
        order: (steps,) the op of each.
        events: See `linked`.
        sizes: (tensors,) bytes.
        own_bytes: (2, ops) workspace, and outputs that stay once they are made.
        given_bytes: What is there from the start.
    """
    own = numpy.empty(len(order), dtype=numpy.int64)
    change = numpy.zeros(len(order) + 1, dtype=numpy.int64)
    change[0] = given_bytes
    seen = numpy.zeros(own_bytes.shape[1], dtype=numpy.bool_)
    for j in range(len(order)):
        workspace_bytes, stays_bytes = own_bytes[:, order[j]]
        own[j] = workspace_bytes
        if seen[order[j]]:
            own[j] += stays_bytes
        else:
            change[j] += stays_bytes
        seen[order[j]] = True
    for event in range(events.shape[1]):
        nbytes = sizes[events[TENSOR, event]]
        if events[MADE, event]:
            change[events[STEP, event]] += nbytes
        if _is_last(events, event):
            change[events[STEP, event] + 1] -= nbytes
    return numpy.cumsum(change[:-1]) + own


@compiled
def remove_steps(
    events: Integers,
    begins: Integers,
    sizes: Integers,
    live: Integers,
    there: Flags,
    candidates: Integers,
    budget_bytes: int,
) -> None:
    """Take out of the steps what fits the budget without, until none of `candidates` does.

    Args:
        events: See `linked`; changed.
        begins: See `linked`.
        sizes: (tensors,) bytes.
        live: (steps,) bytes in use; changed.
        there: (steps,) whether the step was not taken out; changed.
        candidates: Steps that may go; each runs its op again. Those before come first.
        budget_bytes: What may be in use.
    """
    found = True
    while found:
        found = False
        for j in candidates:
            if there[j] and _fits_without(events, begins, sizes, live, j, budget_bytes):
                _take_out(events, begins, sizes, live, j)
                there[j] = False
                found = True


@compiled
def _is_last(events: Integers, event: int) -> bool:
    """Whether no later step reads the instance that `event` makes or reads."""
    after = events[AFTER, event]
    return bool(after < 0 or events[MADE, after])


@compiled
def _change(events: Integers, sizes: Integers, event: int) -> tuple[int, int]:
    """Return the bytes that come on top without the step of `event`, and from which step on.

    Without what it makes, later readers keep the instance before. What it read last ends earlier.
    """
    if bool(events[MADE, event]) == _is_last(events, event):
        return 0, events[STEP, event]
    nbytes = sizes[events[TENSOR, event]]
    return nbytes if events[MADE, event] else -nbytes, events[STEP, events[BEFORE, event]] + 1


@compiled
def _fits_without(
    events: Integers, begins: Integers, sizes: Integers, live: Integers, j: int, budget_bytes: int
) -> bool:
    """Whether no step before `j` passes the budget without step `j`."""
    begin, more_bytes, upto = j, 0, j
    for event in range(begins[j], begins[j + 1]):
        change_bytes, since = _change(events, sizes, event)
        if since < j:
            more_bytes += change_bytes
            if change_bytes > 0:
                begin = min(begin, since)
    # Backwards, from one change to the one before: between them the same comes on top.
    while begin < upto:
        start = begin
        for event in range(begins[j], begins[j + 1]):
            since = _change(events, sizes, event)[1]
            if since < upto:
                start = max(start, since)
        for at in range(start, upto):
            if live[at] + more_bytes > budget_bytes:
                return False
        for event in range(begins[j], begins[j + 1]):
            change_bytes, since = _change(events, sizes, event)
            if since == start:
                more_bytes -= change_bytes
        upto = start
    return True


@compiled
def _take_out(events: Integers, begins: Integers, sizes: Integers, live: Integers, j: int) -> None:
    for event in range(begins[j], begins[j + 1]):
        change_bytes, since = _change(events, sizes, event)
        live[since:j] += change_bytes
        before, after = events[BEFORE, event], events[AFTER, event]
        events[AFTER, before] = after
        if after >= 0:
            events[BEFORE, after] = before
    live[j] = GONE
