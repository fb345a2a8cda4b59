"""Dynamic tensor rematerialization: evict what is cheap, large and stale.

Source: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021): the score
    h(t) = (c0(t) + sum of c0 over e*(t)) / (m(t) s(t)), its variants, the policies of
    deallocation, and storages in place of tensors.
Deviations: The run is simulated on the captured order with the profile's times, and its trace is
    the schedule, so that nothing is left to decide while the step runs. The first score that
    leads through is not improved upon. Outputs that are still there are dropped before their op
    runs again, since a run writes all of them. No sampling and no lower limit of the size.
Exact?: No. For a chain of N ops in about sqrt(N) slots the paper proves O(N) extra runs; OPTIMAL
    only where nothing is recomputed.
Complexity: O(evictions x tensors on the device), for `dtr` and `msps` times the evicted relatives.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from memplan.errors import UsageError
from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.online._evicted_sets import EvictedSets
from memplan.solvers.online._online import Dealloc, OnlineRun
from memplan.solvers.online._online_answer import online_answer

HEURISTICS = ("dtr", "eq", "local", "lru", "size", "msps")


@dataclass(frozen=True, slots=True)
class Dtr:
    """One online run.

    Attributes:
        heuristic: `dtr` with the exact evicted neighbourhood, `eq` with its union-find
            approximation, `local` with the tensor's own cost, `lru`, `size`, or Capuchin's
            `msps`: evicted ancestors, but no staleness.
        dealloc: `eager`, `banish` or `ignore`.
    """

    name: ClassVar[str] = "dtr"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "Kirisame et al., DTR (ICLR 2021), the online run as a plan"

    heuristic: str = "eq"
    dealloc: str = "eager"

    def __post_init__(self) -> None:
        if self.heuristic not in HEURISTICS:
            raise UsageError(f"no heuristic {self.heuristic!r}; choose {', '.join(HEURISTICS)}")
        choices = [choice.value for choice in Dealloc]
        if self.dealloc not in choices:
            raise UsageError(f"no dealloc {self.dealloc!r}; choose {', '.join(choices)}")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the trace of the run."""
        if refusal := below_limit(problem):
            return refusal
        deadline = time.monotonic() + limits.time_s
        return online_answer(
            problem, _DtrRun(problem, self.heuristic, Dealloc(self.dealloc), deadline)
        )


class _DtrRun(OnlineRun):
    """Evicts the least score first."""

    def __init__(
        self, problem: Problem, heuristic: str, dealloc: Dealloc, deadline: float
    ) -> None:
        super().__init__(problem, dealloc, deadline)
        self.heuristic = heuristic
        self.sets = EvictedSets(self)

    def choose(self, need_bytes: int) -> int:
        """Return the tensor of least score."""
        return min(self.candidates(), key=lambda t: (self._score(t), t), default=-1)

    def on_evict(self, t: int) -> None:
        """Join the set of the evicted neighbours."""
        self.sets.add(t)

    def on_make(self, t: int, again: bool) -> None:
        """Leave the set."""
        if again:
            self.sets.remove(t)

    def _score(self, t: int) -> float:
        heuristic, size = self.heuristic, self.sizes[t]
        if heuristic == "size":
            return 1.0 / size
        if heuristic == "msps":
            return (self.cost_ns(t) + self._evicted_cost_ns(t, upward=False)) / size
        staleness = max(1, self.clock_ns - self.used_ns[t])
        if heuristic == "lru":
            return 1.0 / staleness
        cost_ns: float = self.cost_ns(t)
        if heuristic == "eq":
            cost_ns += self.sets.neighbour_cost_ns(t)
        elif heuristic == "dtr":
            cost_ns += self._evicted_cost_ns(t, upward=True)
        return cost_ns / (size * staleness)

    def _evicted_cost_ns(self, t: int, upward: bool) -> int:
        """Return the time of what is evicted and `t` is made from, or if `upward` the reverse too.

        Both by way of evicted tensors only: the paper's e*, without `upward` its lower half.
        """
        total_ns = 0
        for up in (False, True) if upward else (False,):
            stack, seen = [t], {t}
            while stack:
                for u in self.neighbours(stack.pop(), up):
                    if u not in seen and u in self.sets.node:
                        seen.add(u)
                        stack.append(u)
                        total_ns += self.cost_ns(u)
        return total_ns
