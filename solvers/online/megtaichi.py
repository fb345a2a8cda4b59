"""DTR with addresses: what lies beside free memory goes first.

Source: Hu et al., "MegTaiChi: Dynamic Tensor-Based Memory Management Optimization for DNN
    Training" (ICS 2022), as the dynamic rematerialization of MegEngine implements it: the score
    (cost + evicted neighbours) 1.0001^runs / ((bytes + free bytes beside it) staleness).
Deviations: Offline, as `dtr`. Places are found by best fit; eviction goes on until a hole is large
    enough, not until the bytes add up. Tensors are not partitioned over devices. Pinned tensors
    lie outside of the arena.
Exact?: No. OPTIMAL only where nothing is recomputed.
Complexity: O(evictions x tensors on the device^2).
"""

from __future__ import annotations

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
class Megtaichi:
    """One online run."""

    name: ClassVar[str] = "megtaichi"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "MegTaiChi (ICS 2022) as in MegEngine: DTR that looks at addresses"

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the trace of the run."""
        if answer := settled(problem):
            return answer
        return online_answer(problem, _Run(problem, time.monotonic() + limits.time_s))


class _Run(AddressRun):
    """Evicts the least score first."""

    def __init__(self, problem: Problem, deadline: float) -> None:
        super().__init__(problem, Dealloc.EAGER, deadline)
        self.sets = EvictedSets(self)
        self.made_times = [0] * len(self.graph.tensors)

    def victims(self, need_bytes: int) -> list[int]:
        """Return the tensor of least score."""
        return sorted(self.candidates(), key=lambda t: (self._score(t), t))[:1]

    def on_evict(self, t: int) -> None:
        """Join the set of the evicted neighbours."""
        self.sets.add(t)

    def on_make(self, t: int, again: bool) -> None:
        """Leave the set."""
        self.made_times[t] += 1
        if again:
            self.sets.remove(t)

    def _score(self, t: int) -> float:
        cost_ns = 1 + self.cost_ns(t) + self.sets.neighbour_cost_ns(t)
        staleness = max(1, self.clock_ns - self.used_ns[t])
        room = self.sizes[t] + self.arena.free_beside(t)
        return float(cost_ns * 1.0001 ** self.made_times[t] / (room * staleness))
