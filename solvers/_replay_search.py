"""What a replay looks for in the graph, compiled: what an eviction or a recomputation touches."""

from __future__ import annotations

from memplan.planner.compiled import compiled
from memplan.solvers._replay_state import (
    FOUND,
    FUEL,
    MARK,
    NEVER,
    NEXT_USE,
    NOW,
    OP_MARK,
    PRODUCER,
    RECOMPUTABLE,
    RESIDENT,
    STAMP,
    TIME_NS,
    State,
    Work,
)

_LAST_RESORT = 1e290
"""Factor for what can be evicted but whose loss makes others impossible to evict."""


@compiled
def new_mark(state: State) -> int:
    state.counts[STAMP] += 1
    return int(state.counts[STAMP])


@compiled
def search_made_from(work: Work, state: State, depth: int) -> int:
    """List what is there and made from the first `depth` tensors of the stack.

    By way of evicted tensors, that is. Returns how many there are in the row `FOUND`.
    """
    outputs, readers = work.ops.shape[1], 2 * work.ops.shape[1]
    count, now, mark = 0, state.counts[NOW], new_mark(state)
    for i in range(depth):
        state.tensors[MARK, state.stack[i]] = mark
    while depth > 0:
        depth -= 1
        t = state.stack[depth]
        for i in range(work.starts[readers + t], work.starts[readers + t + 1]):
            op = work.items[i]
            if op >= now:
                break
            for k in range(work.starts[outputs + op], work.starts[outputs + op + 1]):
                u = work.items[k]
                state.counts[FUEL] -= 1
                if state.tensors[MARK, u] == mark:
                    continue
                state.tensors[MARK, u] = mark
                if state.tensors[RESIDENT, u]:
                    state.tensors[FOUND, count] = u
                    count += 1
                else:
                    state.stack[depth] = u
                    depth += 1
    return count


@compiled
def again_ns(work: Work, state: State, t: int) -> float:
    """Time of all ops that would have to run to make `t` again; infinite if one cannot."""
    mark, depth, total_ns = new_mark(state), 1, 0.0
    state.stack[0] = work.tensors[PRODUCER, t]
    state.ops[OP_MARK, work.tensors[PRODUCER, t]] = mark
    while depth > 0:
        depth -= 1
        op = state.stack[depth]
        state.counts[FUEL] -= 1
        if not work.ops[RECOMPUTABLE, op]:
            return NEVER
        total_ns += work.ops[TIME_NS, op]
        for i in range(work.starts[op], work.starts[op + 1]):
            u = work.items[i]
            source = work.tensors[PRODUCER, u]
            if not state.tensors[RESIDENT, u] and state.ops[OP_MARK, source] != mark:
                state.ops[OP_MARK, source] = mark
                state.stack[depth] = source
                depth += 1
    return total_ns


@compiled
def loss_of(work: Work, state: State, t: int) -> float:
    """Value of a tensor that cannot be made again once it is gone.

    It has to stay while it is read later, or something evicted that is made from it is.
    """
    outputs, readers = work.ops.shape[1], 2 * work.ops.shape[1]
    ops = work.ops.shape[1]
    if state.tensors[NEXT_USE, t] < ops:
        return NEVER
    loss = 0.0
    mark, depth, now = new_mark(state), 1, state.counts[NOW]
    state.stack[0] = t
    state.tensors[MARK, t] = mark
    while depth > 0:
        depth -= 1
        v = state.stack[depth]
        for i in range(work.starts[readers + v], work.starts[readers + v + 1]):
            op = work.items[i]
            if op >= now:
                break
            for k in range(work.starts[outputs + op], work.starts[outputs + op + 1]):
                u = work.items[k]
                state.counts[FUEL] -= 1
                if state.tensors[MARK, u] == mark:
                    continue
                state.tensors[MARK, u] = mark
                if state.tensors[NEXT_USE, u] < ops:
                    if not state.tensors[RESIDENT, u]:
                        return NEVER
                    loss = _LAST_RESORT
                if not state.tensors[RESIDENT, u]:
                    state.stack[depth] = u
                    depth += 1
    return loss
