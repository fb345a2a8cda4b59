"""Binomial checkpointing: the fewest forward steps for a number of checkpoints.

Source: Griewank and Walther, "Algorithm 799: revolve" (ACM TOMS 26(1), 2000): l steps
    with c checkpoints, the start among them, take r l - beta(c + 1, r - 1) forward steps, where
    beta(c, r) = (c + r)! / (c! r!) and r is the least with l <= beta(c, r).
Deviations: The graph is contracted to a chain first (`_chain`); stages count as equal, whatever
    they take. As the method knows no bytes, each number of checkpoints is tried, the most first,
    and the cheapest plan within the budget is returned. What is always on the device (the
    step's input, and the input of the stage whose window is next) is no checkpoint.
Exact?: Of least forward steps on a chain of equal stages for its number of checkpoints; OPTIMAL
    only where nothing is recomputed.
Complexity: O(stages) plans of O(ops + repeats).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import ClassVar

from memplan.planner.cheapest import cheapest_within
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution, Status
from memplan.solvers.chains._chain import Chain, chain_of
from memplan.solvers.chains._chain_plans import Choice, sequence_for


@dataclass(frozen=True, slots=True)
class Revolve:
    """The binomial schedule.

    Attributes:
        checkpoints: How many, beside the start; None to try every number.
        most_stages: Neighbours are merged where there are more.
    """

    name: ClassVar[str] = "revolve"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Griewank and Walther, revolve (TOMS 2000), binomial checkpointing"

    checkpoints: int | None = None
    most_stages: int = 100

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheapest binomial plan that fits, or why the graph is no chain."""
        if answer := settled(problem):
            return answer
        chain = chain_of(problem.graph, self.most_stages)
        if isinstance(chain, str):
            bound_ns = problem.graph.time_ns
            return Solution(status=Status.UNKNOWN, proven_bound_ns=bound_ns, reason=chain)
        return cheapest_within(problem, self._plans(chain, time.monotonic() + limits.time_s))

    def _plans(self, chain: Chain, deadline: float) -> Iterator[tuple[int, ...]]:
        numbers = range(len(chain) - 1, -1, -1)
        for count in numbers if self.checkpoints is None else (self.checkpoints,):
            sequence = sequence_for(chain, _choose, count)
            if sequence is not None:
                yield sequence
            if time.monotonic() > deadline:
                return


@cache
def forward_steps(steps: int, checkpoints: int) -> int:
    """Return the fewest forward steps to run `steps` of a chain backwards.

    `checkpoints` counts the start.

    >>> forward_steps(4, 2), forward_steps(10, 3)
    (4, 15)
    """
    repeats = 0
    while steps > comb(checkpoints + repeats, checkpoints):
        repeats += 1
    return repeats * steps - comb(checkpoints + repeats, checkpoints + 1)


def _choose(s: int, t: int, checkpoints: int, first: bool) -> Choice | None:
    """Split a segment where the parts take the fewest steps together."""
    if s == t:
        return s, 0
    if checkpoints == 0:
        # Run to the last stage; its input is no checkpoint.
        return t, 0
    length = t - s + 1

    def steps(left: int) -> int:
        right = forward_steps(length - left, checkpoints)
        return left + right + forward_steps(left, checkpoints + 1)

    left = min(range(1, length), key=steps)
    return s + left, checkpoints - 1
