"""Several solvers one after the other; the cheapest schedule and the best bound of all.

Source: none; the pipeline of this project.
Deviations: none.
Exact?: Where a stage proves it: keep-all where everything fits, Checkmate's bound on small
    graphs.
Complexity: That of its stages, within the time limit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver


@dataclass(frozen=True, slots=True)
class Auto:
    """keep-all, then greedy, then, on small graphs, Checkmate.

    Attributes:
        exact_ops: Graphs of up to this many ops go to Checkmate.
    """

    name: ClassVar[str] = "auto"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "keep-all, greedy, and Checkmate on small graphs"

    exact_ops: int = 150

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best of all stages."""
        if refusal := below_limit(problem):
            return refusal
        began = time.monotonic()
        plain = load_solver("keep-all").solve(problem, limits)
        if plain.status is Status.OPTIMAL:
            return plain
        small = len(problem.graph.ops) <= self.exact_ops
        share = 0.4 if small else 1.0
        greedy = load_solver("greedy").solve(problem, _within(limits, share * limits.time_s))
        left_s = limits.time_s - (time.monotonic() - began)
        if greedy.status is Status.OPTIMAL or not small or left_s <= 0:
            return greedy
        exact = load_solver("checkmate", start=greedy.schedule).solve(
            problem, _within(limits, left_s)
        )
        return _better(problem, greedy, exact)


def _within(limits: Limits, time_s: float) -> Limits:
    return Limits(time_s=time_s, seed=limits.seed, threads=limits.threads)


def _better(problem: Problem, first: Solution, second: Solution) -> Solution:
    """Return the cheaper schedule of the two with the better bounds of both."""
    if second.status is Status.INFEASIBLE:
        return second
    found = [x for x in (first, second) if x.schedule is not None]
    bound_ns = max(first.proven_bound_ns, second.proven_bound_ns)
    if not found:
        reason = f"{first.reason}; {second.reason}"
        return Solution(status=Status.UNKNOWN, proven_bound_ns=bound_ns, reason=reason)
    times = [simulate(problem.graph, x.schedule or ()).time_ns for x in found]
    time_ns = min(times)
    return Solution(
        status=Status.OPTIMAL if time_ns <= bound_ns else Status.FEASIBLE,
        schedule=found[times.index(time_ns)].schedule,
        proven_bound_ns=bound_ns,
        model_bound_ns=second.model_bound_ns,
        stats={**first.stats, **second.stats},
    )
