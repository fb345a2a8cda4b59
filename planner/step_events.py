"""Who reads which instance of a tensor in a sequence, and the bytes in use at each step; compiled.

An event is one read or making of a freeable tensor by a step. The events of a tensor are a doubly
linked list in the order of the steps, so that taking a step out is unlinking its events: what read
its output reads the instance before from then on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from memplan.graph_capture.graph import Graph, Op
from memplan.planner.compiled import Flags, Integers, compiled, integers

STEP, TENSOR, MADE, BEFORE, AFTER, EVENT_ROWS = range(6)
"""Rows of events: the step; the tensor; whether the step makes it, rather than reads it; the
tensor's event before and after, or -1. The last is the number of rows."""

GONE = -(1 << 62)
"""Bytes in use at a step that was taken out: far below any budget."""


class Uses(NamedTuple):
    """What each op reads and makes of freeable tensors, and what it costs.

    Attributes:
        starts: (2 ops + 1,) the inputs of op `i` begin in `items` at `starts[2 i]`, its outputs at
            `starts[2 i + 1]`.
        items: Freeable tensors.
        sizes: (tensors,) bytes.
        producer: (tensors,) the op that can make it again, or -1.
        time_ns: (ops,)
        own_bytes: (2, ops) what an op takes while it runs, beside these tensors: its workspace,
            and outputs that stay, which a second run makes beside the first ones.
        given_bytes: What is there from the start.
    """

    starts: Integers
    items: Integers
    sizes: Integers
    producer: Integers
    time_ns: Integers
    own_bytes: Integers
    given_bytes: int


def uses_of(graph: Graph) -> Uses:
    """Return the arrays of a graph."""
    tensors, ops = graph.tensors, graph.ops
    rows = [[t for t in row if not tensors[t].pinned] for op in ops for row in _rows(op)]
    staying = [[t for t in op.outputs if tensors[t].pinned] for op in ops]
    workspace_bytes = integers(op.workspace_bytes for op in ops)
    staying_bytes = integers(sum(tensors[t].nbytes for t in outputs) for outputs in staying)
    return Uses(
        starts=numpy.cumsum([0, *map(len, rows)], dtype=numpy.int64),
        items=integers(t for row in rows for t in row),
        sizes=integers(t.nbytes for t in tensors),
        producer=integers(
            -1 if made is None or not ops[made].recomputable else made for made in graph.producer
        ),
        time_ns=integers(op.time_ns for op in ops),
        own_bytes=numpy.stack((workspace_bytes, staying_bytes)),
        given_bytes=graph.given_bytes,
    )


def _rows(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return op.inputs, op.outputs


@compiled
def linked(uses: Uses, order: Integers) -> tuple[Integers, Integers]:
    """Return the events of all steps, and where those of each step begin.

    Args:
        uses: The graph.
        order: (steps,) the op of each.

    Returns:
        (EVENT_ROWS, events) and (steps + 1,). The events of a step are its inputs, then its
        outputs, as in `Uses.items`.
    """
    starts = uses.starts
    begins = numpy.zeros(len(order) + 1, dtype=numpy.int64)
    for j in range(len(order)):
        op = order[j]
        begins[j + 1] = begins[j] + starts[2 * op + 2] - starts[2 * op]
    events = numpy.empty((EVENT_ROWS, begins[-1]), dtype=numpy.int64)
    latest = numpy.full(len(uses.sizes), -1, dtype=numpy.int64)
    for j in range(len(order)):
        op = order[j]
        for i in range(starts[2 * op], starts[2 * op + 2]):
            event, t = begins[j] + i - starts[2 * op], uses.items[i]
            events[STEP, event], events[TENSOR, event] = j, t
            events[MADE, event] = i >= starts[2 * op + 1]
            events[BEFORE, event], events[AFTER, event] = latest[t], -1
            if latest[t] >= 0:
                events[AFTER, latest[t]] = event
            latest[t] = event
    return events, begins


@compiled
def bytes_in_use(uses: Uses, order: Integers, events: Integers) -> Integers:
    """Return (steps,) the bytes in use while each step runs.

    Args:
        uses: The graph.
        order: (steps,) the op of each.
        events: See `linked`.
    """
    own = numpy.empty(len(order), dtype=numpy.int64)
    change = numpy.zeros(len(order) + 1, dtype=numpy.int64)
    change[0] = uses.given_bytes
    seen = numpy.zeros(len(uses.time_ns), dtype=numpy.bool_)
    for j in range(len(order)):
        workspace_bytes, staying_bytes = uses.own_bytes[:, order[j]]
        own[j] = workspace_bytes
        if seen[order[j]]:
            own[j] += staying_bytes
        else:
            change[j] += staying_bytes
        seen[order[j]] = True
    for event in range(events.shape[1]):
        nbytes = uses.sizes[events[TENSOR, event]]
        if events[MADE, event]:
            change[events[STEP, event]] += nbytes
        if is_last(events, event):
            change[events[STEP, event] + 1] -= nbytes
    return numpy.cumsum(change[:-1]) + own


@compiled
def is_last(events: Integers, event: int) -> bool:
    """Whether no later step reads the instance that `event` makes or reads."""
    after = events[AFTER, event]
    return bool(after < 0 or events[MADE, after])


@compiled
def remove_steps(
    uses: Uses,
    events: Integers,
    begins: Integers,
    live: Integers,
    there: Flags,
    candidates: Integers,
    budget_bytes: int,
) -> None:
    """Take steps out as long as what is in use stays within the budget.

    Args:
        uses: The graph.
        events: See `linked`; changed.
        begins: See `linked`.
        live: (steps,) bytes in use; changed.
        there: (steps,) whether the step was not taken out; changed.
        candidates: Steps that may go; each runs its op again. Those before come first, in rounds
            until none goes.
        budget_bytes: What may be in use.
    """
    found = True
    while found:
        found = False
        for j in candidates:
            if not there[j]:
                continue
            if peak_without(uses, events, begins, live, j, budget_bytes)[0] <= budget_bytes:
                _take_out(uses, events, begins, live, j)
                there[j] = False
                found = True


@compiled
def _change(uses: Uses, events: Integers, event: int) -> tuple[int, int]:
    """Return the bytes that come on top without the step of `event`, and from which step on.

    Without what it makes, later readers keep the instance before. What it read last ends earlier.
    """
    if bool(events[MADE, event]) == is_last(events, event):
        return 0, events[STEP, event]
    nbytes = uses.sizes[events[TENSOR, event]]
    return nbytes if events[MADE, event] else -nbytes, events[STEP, events[BEFORE, event]] + 1


@compiled
def peak_without(
    uses: Uses, events: Integers, begins: Integers, live: Integers, j: int, enough_bytes: int
) -> tuple[int, int]:
    """Return the most that is in use without step `j` where that is more than with it, and when.

    Steps after one with more than `enough_bytes` are not looked at. The step is -1 where nothing
    comes on top.
    """
    begin, more_bytes, upto = j, 0, j
    for event in range(begins[j], begins[j + 1]):
        change_bytes, since = _change(uses, events, event)
        if since < j:
            more_bytes += change_bytes
            if change_bytes > 0:
                begin = min(begin, since)
    peak_bytes, peak_step = GONE, -1
    # Backwards, from one change to the one before: between them the same comes on top.
    while begin < upto and peak_bytes <= enough_bytes:
        start = begin
        for event in range(begins[j], begins[j + 1]):
            since = _change(uses, events, event)[1]
            if since < upto:
                start = max(start, since)
        for at in range(start, upto):
            if live[at] + more_bytes > peak_bytes:
                peak_bytes, peak_step = live[at] + more_bytes, at
                if peak_bytes > enough_bytes:
                    break
        for event in range(begins[j], begins[j + 1]):
            change_bytes, since = _change(uses, events, event)
            if since == start:
                more_bytes -= change_bytes
        upto = start
    return peak_bytes, peak_step


@compiled
def _take_out(uses: Uses, events: Integers, begins: Integers, live: Integers, j: int) -> None:
    for event in range(begins[j], begins[j + 1]):
        change_bytes, since = _change(uses, events, event)
        live[since:j] += change_bytes
        before, after = events[BEFORE, event], events[AFTER, event]
        events[AFTER, before] = after
        if after >= 0:
            events[BEFORE, after] = before
    live[j] = GONE
