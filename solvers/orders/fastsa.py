"""Simulated annealing of a sequence: add, remove and move ops.

Source: FastSA (NeurIPS 2023): ops in a vector of slots, moves that add, remove and move, and the
    objective max(budget, peak) x time, annealed from a thousandth of its first value down by
    four decades.
Deviations: Bytes in use are a vector and its maximum, not a segment tree; ops are not grouped
    first; the number of moves grows with the graph and is far below the paper's 20 million, as
    this is Python. Half of the additions go right before a reader. First runs of random draws,
    of ops with side effects and of those that make something pinned stay where they are. The
    best sequence is pruned at the end.
Exact?: No. It may reorder, so it can beat every schedule of the captured order; OPTIMAL only where
    nothing is recomputed.
Complexity: O(log readers + lifetimes + slots) a move, the last two vectorised.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.prune import prune
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.solvers.orders._slots import EMPTY, Slots

_FIRST_TEMPERATURE = 1e-3
_DECADES = 4.0
_CHECKED_MOVES = 256
"""How often the clock is read."""


@dataclass(frozen=True, slots=True)
class Fastsa:
    """One annealing.

    Attributes:
        moves_per_op: How many moves are tried for each op of the graph.
        slots_per_op: Slots for each op; one of them is full at first.
    """

    name: ClassVar[str] = "fastsa"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "FastSA (NeurIPS 2023), simulated annealing of the sequence"

    moves_per_op: int = 400
    slots_per_op: int = 8

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheapest sequence within the budget that was met."""
        if answer := settled(problem):
            return answer
        annealing = _Annealing(problem, Slots(problem.graph, self.slots_per_op), limits)
        moves = 1000 + self.moves_per_op * len(problem.graph.ops)
        best = annealing.run(moves, time.monotonic() + limits.time_s)
        stats = {"moves": moves, "accepted": annealing.accepted}
        graph = problem.graph
        if best is None:
            lowest = annealing.lowest_bytes
            return Solution(
                status=Status.UNKNOWN,
                proven_bound_ns=graph.time_ns,
                reason=f"the annealing ended at {lowest:,} bytes",
                stats=stats,
            )
        schedule = schedule_of(graph, prune(graph, best, problem.budget_bytes))
        optimal = simulate(graph, schedule).time_ns == graph.time_ns
        return Solution(
            status=Status.OPTIMAL if optimal else Status.FEASIBLE,
            schedule=schedule,
            proven_bound_ns=graph.time_ns,
            stats=stats,
        )


class _Annealing:
    """The walk and the best sequence on it."""

    def __init__(self, problem: Problem, slots: Slots, limits: Limits) -> None:
        self.slots, self.budget_bytes = slots, problem.budget_bytes
        self.rng = random.Random(limits.seed)
        self.able = [i for i, op in enumerate(problem.graph.ops) if op.recomputable]
        self.accepted = 0
        self.lowest_bytes = slots.peak_bytes
        self.value = self._objective(self.lowest_bytes)
        self.best: tuple[int, ...] | None = None
        self.best_ns = 0

    def _objective(self, peak_bytes: int) -> float:
        return float(max(self.budget_bytes, peak_bytes)) * max(1, self.slots.time_ns)

    def run(self, moves: int, deadline: float) -> tuple[int, ...] | None:
        """Try `moves` moves, cooling down; return the best sequence within the budget."""
        first = _FIRST_TEMPERATURE * self.value
        for k in range(moves):
            if k % _CHECKED_MOVES == 0 and time.monotonic() > deadline:
                break
            temperature = first * 10 ** (-_DECADES * k / moves)
            undo = self._move()
            if not undo:
                continue
            peak_bytes = self.slots.peak_bytes
            value = self._objective(peak_bytes)
            worse = value - self.value
            if worse > 0 and self.rng.random() >= math.exp(-worse / temperature):
                self._apply(undo)
                continue
            self.value = value
            self.accepted += 1
            self.lowest_bytes = min(self.lowest_bytes, peak_bytes)
            if peak_bytes <= self.budget_bytes and (
                self.best is None or self.slots.time_ns < self.best_ns
            ):
                self.best, self.best_ns = self.slots.sequence(), self.slots.time_ns
        return self.best

    def _move(self) -> tuple[tuple[int, int], ...]:
        """Change something; return how to undo it as (op or `EMPTY`, slot), or nothing."""
        kind = self.rng.random()
        if kind < 0.4:
            return self._add()
        if kind < 0.75:
            return self._remove()
        return self._shift()

    def _apply(self, changes: tuple[tuple[int, int], ...]) -> None:
        for op, slot in changes:
            if op == EMPTY:
                self.slots.take(slot)
            else:
                self.slots.put(op, slot)

    def _add(self) -> tuple[tuple[int, int], ...]:
        slots, rng = self.slots, self.rng
        if not self.able:
            return ()
        op, slot = rng.choice(self.able), rng.randrange(slots.size)
        if rng.random() < 0.5:
            readers = [s for t in slots.outputs[op] for s in slots.readers[t]]
            if not readers:
                return ()
            slot = self._empty_before(rng.choice(readers))
        if slot < 0 or not slots.may_put(op, slot) or slot < slots.positions[op][0]:
            return ()
        slots.put(op, slot)
        return ((EMPTY, slot),)

    def _remove(self) -> tuple[tuple[int, int], ...]:
        slots = self.slots
        op = self.rng.randrange(len(slots.positions))
        slot = self.rng.choice(slots.positions[op])
        if not slots.may_take(slot):
            return ()
        return ((slots.take(slot), slot),)

    def _shift(self) -> tuple[tuple[int, int], ...]:
        """Move a run to another slot, its first run only as far as its readers allow."""
        slots, rng = self.slots, self.rng
        op = rng.randrange(len(slots.positions))
        slot = rng.choice(slots.positions[op])
        reach = rng.choice((slots.size // 4, slots.size // 32 + 2, 16))
        to = min(slots.size - 1, max(0, slot + rng.randint(-reach, reach)))
        if slot == slots.positions[op][0]:
            if not slots.may_move(slot, to):
                return ()
        elif to < slots.positions[op][0] or not slots.may_put(op, to):
            return ()
        slots.take(slot)
        slots.put(op, to)
        return ((EMPTY, to), (op, slot))

    def _empty_before(self, slot: int) -> int:
        """Return the last empty slot before `slot`, or -1."""
        slot -= 1
        while slot >= 0 and self.slots.ops[slot] != EMPTY:
            slot -= 1
        return slot
