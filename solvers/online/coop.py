"""Evict neighbours in memory together: the cheapest window that is large enough.

Source: Zhang et al., "Coop: Memory is not a Commodity" (NeurIPS 2023): sliding window eviction,
    and cheap tensors placed from one end of memory, expensive ones from the other.
Deviations: Offline, as `dtr`, with its score h_eq. Cheap is what costs less for its bytes than the
    step does on average. No reuse of places by ops that write in place: they are captured as
    one storage. Pinned tensors lie outside of the arena.
Exact?: No. OPTIMAL only where nothing is recomputed.
Complexity: O(evictions x tensors on the device).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.online._addresses import AddressRun
from memplan.solvers.online._evicted_sets import EvictedSets
from memplan.solvers.online._online import Dealloc
from memplan.solvers.online._online_answer import online_answer


@dataclass(frozen=True, slots=True)
class Coop:
    """One online run."""

    name: ClassVar[str] = "coop"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "Coop (NeurIPS 2023): sliding windows over addresses"

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the trace of the run."""
        if answer := settled(problem):
            return answer
        return online_answer(problem, _Run(problem, time.monotonic() + limits.time_s))


class _Run(AddressRun):
    """Evicts the window of least score."""

    best_fit = False

    def __init__(self, problem: Problem, deadline: float) -> None:
        super().__init__(problem, Dealloc.EAGER, deadline)
        self.sets = EvictedSets(self)
        total_bytes = sum(self.sizes[t] for t, movable in enumerate(self.movable) if movable)
        self.mean_cost = self.graph.time_ns / max(1, total_bytes)

    def from_right(self, t: int) -> bool:
        """Return whether making `t` again is dear for its bytes."""
        return self.cost_ns(t) > self.mean_cost * self.sizes[t]

    def victims(self, need_bytes: int) -> list[int]:
        """Return the tensors of the best window: two ends that move to the right."""
        best, chosen = math.inf, list[int]()
        window: list[tuple[int, int, float]] = []
        """Owner, end and score of the blocks between `begin` and the one that is looked at."""
        begin, score = 0, 0.0
        for offset, nbytes, owner in [*self.arena.blocks, (self.arena.size_bytes, 0, -1)]:
            # Without its first blocks a window may still be large enough, and costs less.
            while window and offset - window[0][1] >= need_bytes:
                _, begin, own = window.pop(0)
                score -= own
            if window and offset - begin >= need_bytes and score < best:
                best, chosen = score, [t for t, _, _ in window]
            if owner >= 0 and self.resident[owner] and self.may_evict(owner):
                window.append((owner, offset + nbytes, self._score(owner)))
                score += window[-1][2]
            else:
                window, score, begin = [], 0.0, offset + nbytes
        return chosen

    def on_evict(self, t: int) -> None:
        """Join the set of the evicted neighbours."""
        self.sets.add(t)

    def on_make(self, t: int, again: bool) -> None:
        """Leave the set."""
        if again:
            self.sets.remove(t)

    def _score(self, t: int) -> float:
        staleness = max(1, self.clock_ns - self.used_ns[t])
        cost_ns = self.cost_ns(t) + self.sets.neighbour_cost_ns(t)
        return cost_ns / (self.sizes[t] * staleness)
