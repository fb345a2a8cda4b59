"""Run the ops in another order that needs less memory, then recompute what still does not fit.

Source: Orders by list scheduling with noise and moves of single ops (see `_moved_order`); that
    random layered graphs run in less memory in another order was shown by Bartan et al.,
    "Moccasin" (ICML 2023) and by FastSA (NeurIPS 2023).
Deviations: The order is chosen for its peak alone; recomputations are planned after that.
Exact?: No. Optimal where the order alone fits: then nothing runs twice.
Complexity: A try costs O(ops^2), a move O(reads); then what the inner solver costs.

Steps that were captured from a model keep their order. A graph says which op reads which tensor,
but not which one reads a buffer before another updates it in place, nor that the gradients of the
outputs exist only once the backward pass has begun. The captured order respects both, and
bit-identical gradients come before memory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

from memplan.graph_capture.graph import Graph
from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Solver, Status, load_solver
from memplan.solvers.orders._moved_order import lowest_order
from memplan.solvers.orders._order import is_captured, lifted, reordered

_SHARE = 0.5
"""Of the time limit, for the order."""

_GAP = 3e-3
"""The inner solver stops at this share of its bound."""


@dataclass(frozen=True, slots=True)
class Reorder:
    """An order with a small peak, then the inner solver on it.

    Attributes:
        inner: Solver that plans the graph in the new order, where the order alone does not fit.
        least_gain: By which share of the peak the order must lower it for that.
        orders: How many orders are tried, until one alone fits.
        lowest: Look for the schedule with the smallest peak instead of the fastest one.
    """

    name: ClassVar[str] = "reorder"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "list scheduling and moves for a smaller peak, then greedy replays"

    inner: str = "auto"
    least_gain: float = 0.01
    orders: int = 2
    lowest: bool = False

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return a schedule in the new order."""
        if refusal := below_limit(problem):
            return refusal
        graph = problem.graph
        plain = schedule_of(graph, range(len(graph.ops)))
        plain_bytes = simulate(graph, plain).peak_bytes
        if plain_bytes <= problem.budget_bytes:
            return Solution(status=Status.OPTIMAL, schedule=plain, proven_bound_ns=graph.time_ns)
        if is_captured(graph):
            return _none(graph, "steps captured from a model keep their order")
        most_bytes = max(problem.budget_bytes, int((1 - self.least_gain) * plain_bytes))
        deadline, best = time.monotonic() + limits.time_s, _none(graph, "time ran out")
        for k in range(self.orders):
            left_s = (deadline - time.monotonic()) / (self.orders - k)
            if left_s <= 0 or best.status is Status.OPTIMAL or "interrupted" in best.stats:
                break
            turn = replace(limits, time_s=left_s, seed=limits.seed + k)
            found = self._try(problem, most_bytes, turn)
            best = self._better(graph, best, found)
            if found.stats["order_peak_bytes"] > most_bytes:
                break
        return best

    def _try(self, problem: Problem, most_bytes: int, limits: Limits) -> Solution:
        """Find an order with a peak of at most `most_bytes` and plan in it."""
        graph, began = problem.graph, time.monotonic()
        goal_bytes = 0 if self.lowest else problem.budget_bytes
        until = began + _SHARE * limits.time_s
        order = lowest_order(graph, goal_bytes, until, limits.seed)
        peak_bytes = simulate(graph, schedule_of(graph, order)).peak_bytes
        stats = {"order_s": time.monotonic() - began, "order_peak_bytes": peak_bytes}
        if peak_bytes > most_bytes:
            return _none(graph, "no order found that takes much less memory", stats)
        left_s = max(0.0, limits.time_s - stats["order_s"])
        budget_bytes = problem.budget_bytes
        if self.lowest:
            budget_bytes = min(budget_bytes, peak_bytes - 1)
        other = Problem(graph=reordered(graph, order), budget_bytes=budget_bytes)
        # A proof is worth little here: it holds for this order only.
        asked = replace(limits, time_s=left_s, gap=max(_GAP, limits.gap))
        answer = self._inner().solve(other, asked)
        schedule, stats = answer.schedule, {**answer.stats, **stats}
        if schedule is None and peak_bytes <= problem.budget_bytes:
            schedule = schedule_of(other.graph, range(len(order)))
        if schedule is None:
            return _none(graph, f"in the new order, {answer.reason}", stats)
        return Solution(
            status=Status.FEASIBLE,
            schedule=lifted(order, schedule),
            # What the inner solver proved, it proved for the new order only.
            proven_bound_ns=graph.time_ns,
            stats=stats,
        )

    def _inner(self) -> Solver:
        if self.lowest:
            return load_solver("greedy", lowest=True)
        return load_solver(self.inner, **({"reorder": False} if self.inner == "auto" else {}))

    def _better(self, graph: Graph, best: Solution, found: Solution) -> Solution:
        if found.schedule is None:
            return best if best.schedule is not None else found
        timeline = simulate(graph, found.schedule)
        if timeline.time_ns == graph.time_ns and not self.lowest:
            return replace(found, status=Status.OPTIMAL)
        if best.schedule is None:
            return found
        before = simulate(graph, best.schedule)
        if self.lowest:
            return found if timeline.peak_bytes < before.peak_bytes else best
        return found if timeline.time_ns < before.time_ns else best


def _none(graph: Graph, reason: str, stats: dict[str, float] | None = None) -> Solution:
    return Solution(
        status=Status.UNKNOWN, proven_bound_ns=graph.time_ns, reason=reason, stats=stats or {}
    )
