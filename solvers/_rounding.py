"""Schedules that keep what the relaxation keeps at the scarcest instant.

Everything else is made again when the backward phase first needs it. Where much is lost in a row,
that takes more room than there is; so the relaxation is asked again, with less room, and with
some checkpoints that have to stay: the tensors at places where few bytes are alive.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from memplan.planner.checkpoints import forward_end, sequence_losing
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.solvers._proof import Prover
from memplan.solvers.programs._windows import forward_cuts

_SEGMENTS = (1, 10, 20, 40, 5)
"""Into how many parts the checkpoints cut the forward phase at most, in the order tried."""
_LOOKS, _CLOSER = 6, 2
"""For each of them, how often less room is tried until a schedule fits, and then more again."""
_LEAST_SHARE, _LEAST_STEP = 0.2, 0.005
"""Of the room: with less than the first it is hopeless; the second is the least change."""


def rounded(problem: Problem, prover: Prover, until: float) -> Iterator[tuple[int, ...]]:
    """Yield sequences that fit the budget, until time is over.

    Args:
        problem: The problem.
        prover: Keeps the bound that the first relaxation proves.
        until: When to end, by `time.monotonic`.
    """
    tried: list[frozenset[int]] = []
    for segments in _SEGMENTS:
        kept = _checkpoints(problem, segments)
        if kept in tried:
            continue
        tried.append(kept)
        yield from _Rounding(problem, prover, kept, until).sequences()


def _checkpoints(problem: Problem, segments: int) -> frozenset[int]:
    """Return the tensors made where the forward phase is cut."""
    graph = problem.graph
    cuts = forward_cuts(graph, forward_end(graph), segments) if segments > 1 else []
    return frozenset(t for op in cuts for t in graph.ops[op].outputs)


class _Rounding:
    """The search for the largest share of the room with which the schedule fits."""

    def __init__(
        self, problem: Problem, prover: Prover, kept: frozenset[int], until: float
    ) -> None:
        self.problem, self.prover, self.kept, self.until = problem, prover, kept, until
        self.excess = 0.0
        """By how much the last schedule passed the budget, as a share of the room."""

    def sequences(self) -> Iterator[tuple[int, ...]]:
        """Yield what fits, each from a larger share than the one before."""
        share, refused, found = 1.0, 1.0, None
        for _ in range(_LOOKS):
            found = self._look(share)
            if found is None or self.excess <= 0:
                break
            refused = share
            share -= max(_LEAST_STEP, self.excess)
            if share < _LEAST_SHARE:
                return
        if found is None or self.excess > 0:
            return
        yield found
        for _ in range(_CLOSER):
            if refused - share <= _LEAST_STEP:
                return
            middle = (share + refused) / 2
            found = self._look(middle)
            if found is None:
                return
            if self.excess > 0:
                refused = middle
            else:
                share = middle
                yield found

    def _look(self, share: float) -> tuple[int, ...] | None:
        """Return the sequence of one share; None where there is no relaxation, or no time."""
        drops = self.prover.look(share, self.until - time.monotonic(), self.kept)
        if drops is None:
            return None
        graph = self.problem.graph
        sequence = sequence_losing(graph, drops.lost, drops.end)
        peak_bytes = simulate(graph, schedule_of(graph, sequence)).peak_bytes
        self.excess = (peak_bytes - self.problem.budget_bytes) / max(1, drops.room_bytes)
        return sequence
