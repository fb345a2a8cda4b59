"""The inner loop of a greedy replay, compiled: see `_replay` for what it does.

All state is in arrays, see `_replay_state`, so that a run can stop for a look at the clock and go
on.
"""

from __future__ import annotations

from memplan.planner.compiled import compiled
from memplan.solvers._replay_search import again_ns, loss_of, new_mark, search_made_from
from memplan.solvers._replay_state import (
    CURSOR,
    DUE,
    EXTRA,
    FOUND,
    FUEL,
    GONE,
    LEAST_NS,
    LISTED,
    LOCKS,
    MOST_NOW,
    NEVER,
    NEXT_USE,
    NOW,
    PENDING,
    PENDING_OP,
    PINNED_BYTES,
    PLACE,
    PRICED,
    PRODUCER,
    RAN,
    RECOMPUTABLE,
    RESIDENT,
    RUNNING_BYTES,
    SCORE,
    SIZE,
    STALE,
    THERE,
    TIME_NS,
    USED,
    VALUE,
    Rule,
    State,
    Work,
)

STUCK, ENDED, PAUSED = 0, 1, 2
"""How a walk ends."""


@compiled
def walk(work: Work, rule: Rule, state: State, walked: int) -> int:
    """Run the first `walked` ops in their order, from where `state` is.

    Returns:
        `ENDED`, `STUCK` where an op has no room or costs too much, `PAUSED` where the fuel is
        used up and the walk can go on.
    """
    while state.counts[NOW] < walked:
        op = state.counts[NOW]
        if state.counts[PENDING] == 0:
            state.counts[MOST_NOW] = rule.most_runs
            if rule.circles >= 0:
                most_runs = state.counts[RAN] + rule.circles * op + rule.few_runs
                state.counts[MOST_NOW] = min(rule.most_runs, most_runs)
        outcome = _compute(work, rule, state, op)
        if outcome != ENDED:
            return outcome
        for i in range(work.starts[op], work.starts[op + 1]):
            _pass_use(work, rule, state, work.items[i])
        state.counts[NOW] = op + 1
    return ENDED


@compiled
def _compute(work: Work, rule: Rule, state: State, op: int) -> int:
    """Run `op` for the first time, with whatever has to be made before."""
    if state.counts[PENDING] == 0:
        if _missing(work, state, op, False) < 0:
            return ENDED if _run(work, rule, state, op, True) else STUCK
        state.ops[PENDING_OP, 0] = op
        state.counts[PENDING] = 1
        _lock(work, state, op)
    while state.counts[PENDING] > 0:
        if state.counts[FUEL] <= 0:
            return PAUSED
        top = state.ops[PENDING_OP, state.counts[PENDING] - 1]
        needed = _missing(work, state, top, rule.newest_first)
        if needed >= 0:
            source = work.tensors[PRODUCER, needed]
            too_much = (
                state.counts[EXTRA] > rule.most_extra_ns
                or state.counts[RAN] > state.counts[MOST_NOW]
            )
            if not work.ops[RECOMPUTABLE, source] or too_much:
                return STUCK
            state.ops[PENDING_OP, state.counts[PENDING]] = source
            state.counts[PENDING] += 1
            _lock(work, state, source)
            continue
        if not _run(work, rule, state, top, state.counts[PENDING] == 1):
            return STUCK
        state.counts[PENDING] -= 1
        _unlock(work, state, top)
    return ENDED


@compiled
def _missing(work: Work, state: State, op: int, newest: bool) -> int:
    """Return the first, or the last, input of `op` that is not there; -1 where all are."""
    found = -1
    for i in range(work.starts[op], work.starts[op + 1]):
        t = work.items[i]
        if not state.tensors[RESIDENT, t]:
            found = t
            if not newest:
                break
    return found


@compiled
def _run(work: Work, rule: Rule, state: State, op: int, first: bool) -> bool:
    """Run one op whose inputs are there; False where there is no room for it."""
    ops = outputs = work.ops.shape[1]
    begin, end = work.starts[outputs + op], work.starts[outputs + op + 1]
    need = work.ops[RUNNING_BYTES, op]
    if not first:
        # A second run replaces outputs that are still there: they go before it.
        for i in range(begin, end):
            if state.tensors[RESIDENT, work.items[i]]:
                need -= work.tensors[SIZE, work.items[i]]
    if state.counts[USED] + need > rule.budget_bytes:
        _lock(work, state, op)
        if not first:
            _lock(work, state, outputs + op)
        enough = _make_room(work, rule, state, need, op, first)
        _unlock(work, state, op)
        if not first:
            _unlock(work, state, outputs + op)
        if not enough:
            return False
    state.order[state.counts[RAN]] = op
    state.counts[RAN] += 1
    made = 0
    for i in range(begin, end):
        if not state.tensors[RESIDENT, work.items[i]]:
            state.tensors[GONE, made] = state.stack[made] = work.items[i]
            made += 1
    if first:
        state.counts[USED] += work.ops[PINNED_BYTES, op]
    else:
        state.counts[EXTRA] += work.ops[TIME_NS, op]
        _cheapen_below(work, rule, state, made, float(work.ops[TIME_NS, op]))
    for i in range(made):
        t = state.tensors[GONE, i]
        _arrive(work, state, t)
        due = state.tensors[NEXT_USE, t]
        state.tensors[DUE, t] = due if due < ops else 2 * ops
        # All inputs are there: making it again takes this op alone.
        least_ns = float(work.ops[TIME_NS, op]) if work.ops[RECOMPUTABLE, op] else NEVER
        _set_least(work, rule, state, t, least_ns, False)
    return True


@compiled
def _pass_use(work: Work, rule: Rule, state: State, t: int) -> None:
    """Note that the op that runs now, which reads `t`, has run."""
    readers = 2 * work.ops.shape[1]
    cursor = state.tensors[CURSOR, t] + 1
    state.tensors[CURSOR, t] = cursor
    begin, end = work.starts[readers + t], work.starts[readers + t + 1]
    if cursor < end - begin:
        state.tensors[NEXT_USE, t] = state.tensors[DUE, t] = work.items[begin + cursor]
        return
    ops = work.ops.shape[1]
    state.tensors[NEXT_USE, t], state.tensors[DUE, t] = ops, 2 * ops
    if state.tensors[RESIDENT, t] and state.prices[VALUE, t] == NEVER:
        # What cannot be made again may go once nobody reads it.
        _set_least(work, rule, state, t, 0.0, True)


@compiled
def _lock(work: Work, state: State, row: int) -> None:
    for i in range(work.starts[row], work.starts[row + 1]):
        state.tensors[LOCKS, work.items[i]] += 1
        state.prices[SCORE, work.items[i]] = NEVER


@compiled
def _unlock(work: Work, state: State, row: int) -> None:
    for i in range(work.starts[row], work.starts[row + 1]):
        t = work.items[i]
        state.tensors[LOCKS, t] -= 1
        if state.tensors[LOCKS, t] == 0 and state.tensors[RESIDENT, t]:
            state.prices[SCORE, t] = state.prices[VALUE, t]


@compiled
def _arrive(work: Work, state: State, t: int) -> None:
    state.tensors[RESIDENT, t] = True
    state.counts[USED] += work.tensors[SIZE, t]
    state.tensors[PLACE, t] = state.counts[THERE]
    state.tensors[LISTED, state.counts[THERE]] = t
    state.counts[THERE] += 1


@compiled
def _evict(work: Work, state: State, t: int) -> None:
    state.tensors[RESIDENT, t] = False
    state.counts[USED] -= work.tensors[SIZE, t]
    state.prices[SCORE, t] = NEVER
    state.counts[THERE] -= 1
    last = state.tensors[LISTED, state.counts[THERE]]
    state.tensors[LISTED, state.tensors[PLACE, t]] = last
    state.tensors[PLACE, last] = state.tensors[PLACE, t]
    state.tensors[PLACE, t] = -1
    state.stack[0] = t
    for i in range(search_made_from(work, state, 1)):
        state.tensors[STALE, state.tensors[FOUND, i]] = True


@compiled
def _readmit(work: Work, rule: Rule, state: State, t: int) -> None:
    cost_ns = again_ns(work, state, t)
    _arrive(work, state, t)
    _set_least(work, rule, state, t, cost_ns, False)
    state.stack[0] = t
    _cheapen_below(work, rule, state, 1, cost_ns)


@compiled
def _make_room(work: Work, rule: Rule, state: State, need: int, op: int, first: bool) -> bool:
    """Evict until `need` bytes fit beside what is there; nothing that `op` needs."""
    gone = 0
    rechecked = False
    while state.counts[USED] + need > rule.budget_bytes:
        t = _cheapest(work, rule, state)
        if t < 0 and not rechecked:
            rechecked = True
            for i in range(state.counts[THERE]):
                if state.prices[VALUE, state.tensors[LISTED, i]] == NEVER:
                    _set_least(work, rule, state, state.tensors[LISTED, i], 0.0, True)
            continue
        if t < 0:
            t = _cheapest_locked(work, state, op, first)
        if t < 0:
            return False
        _evict(work, state, t)
        state.tensors[GONE, gone] = t
        gone += 1
    # One large tensor may have made the smaller ones before it unnecessary.
    for i in range(gone - 2, -1, -1):
        t = state.tensors[GONE, i]
        if state.counts[USED] + need + work.tensors[SIZE, t] <= rule.budget_bytes:
            _readmit(work, rule, state, t)
    return True


@compiled
def _cheapest(work: Work, rule: Rule, state: State) -> int:
    """Return the tensor to evict, or -1 where none may be."""
    now, mark = state.counts[NOW], new_mark(state)
    while True:
        best, chosen = NEVER, -1
        for i in range(state.counts[THERE]):
            t = state.tensors[LISTED, i]
            if state.prices[SCORE, t] < NEVER:
                scored = state.prices[SCORE, t] * rule.nearness[state.tensors[DUE, t] - now]
                if scored < best or (scored == best and t < chosen):
                    best, chosen = scored, t
        state.counts[FUEL] -= state.counts[THERE] + 1
        if chosen < 0 or state.tensors[PRICED, chosen] == mark:
            return chosen
        if not state.tensors[STALE, chosen] and state.prices[LEAST_NS, chosen] < NEVER:
            return chosen
        _price(work, rule, state, chosen)
        state.tensors[PRICED, chosen] = mark


@compiled
def _cheapest_locked(work: Work, state: State, op: int, first: bool) -> int:
    """Return the cheapest tensor that only outer pending ops hold; it is made again later."""
    outputs = work.ops.shape[1]
    best, chosen = NEVER, -1
    for t in range(work.tensors.shape[1]):
        if (
            state.tensors[LOCKS, t] == 0
            or not state.tensors[RESIDENT, t]
            or state.prices[VALUE, t] >= best
        ):
            continue
        held = _has(work, op, t) or (not first and _has(work, outputs + op, t))
        if not held and again_ns(work, state, t) < NEVER:
            best, chosen = state.prices[VALUE, t], t
    state.counts[FUEL] -= work.tensors.shape[1]
    return chosen


@compiled
def _has(work: Work, row: int, item: int) -> bool:
    found = False
    for i in range(work.starts[row], work.starts[row + 1]):
        found = found or work.items[i] == item
    return found


@compiled
def _cheapen_below(work: Work, rule: Rule, state: State, made: int, cost_ns: float) -> None:
    """Take `cost_ns` off what is made from the first `made` tensors of the stack."""
    count = search_made_from(work, state, made)
    for i in range(count):
        u = state.tensors[FOUND, i]
        if state.prices[LEAST_NS, u] == NEVER or cost_ns == NEVER:
            _set_least(work, rule, state, u, 0.0, True)
        else:
            less_ns = max(0.0, state.prices[LEAST_NS, u] - cost_ns)
            _set_least(work, rule, state, u, less_ns, state.tensors[STALE, u] != 0)


@compiled
def _price(work: Work, rule: Rule, state: State, t: int) -> None:
    """Find the true cost of making `t` again."""
    cost_ns = again_ns(work, state, t)
    _set_least(work, rule, state, t, cost_ns, False)
    if cost_ns == NEVER:
        state.prices[VALUE, t] = loss_of(work, state, t)
        state.prices[SCORE, t] = NEVER if state.tensors[LOCKS, t] > 0 else state.prices[VALUE, t]


@compiled
def _set_least(work: Work, rule: Rule, state: State, t: int, least_ns: float, stale: bool) -> None:
    state.prices[LEAST_NS, t], state.tensors[STALE, t] = least_ns, stale
    value = NEVER
    if least_ns < NEVER:
        value = (least_ns + 1.0) ** rule.cost / rule.divisor[t]
    elif state.tensors[NEXT_USE, t] == work.ops.shape[1]:
        value = 0.0
    state.prices[VALUE, t] = value
    state.prices[SCORE, t] = NEVER if state.tensors[LOCKS, t] > 0 else value
