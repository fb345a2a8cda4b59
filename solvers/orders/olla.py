"""Another order of the ops, exact on parts: nothing runs twice.

Source: Steiner et al., "OLLA: Optimizing the Lifetime and Location of Arrays to Reduce the Memory
    Usage of Neural Networks" (2022; at ICML 2023 as MODeL), its integer program for the order of
    ops; Shu et al., "ROAM: memory-efficient large DNN training via optimized operator ordering and
    memory layout" (2023), which cuts the graph into parts that are ordered one by one.
Deviations: Cuts are where every op before must run before every op after, so that parts are
    independent and exact orders of them make an exact order of the whole. A part with more than
    `most_ops` ops is ordered in windows around its peak, from the order of list scheduling
    (`_moved_order`). One op runs at a time. Without the layout of addresses and without spilling.
Exact?: The lowest peak of any order, where no part is larger than `most_ops` and time does not run
    out. A plan is optimal, as nothing runs twice; where none fits, recomputing may still help.
Complexity: O(ops^2) binaries a part or window, each at most `most_ops`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from memplan.graph_capture.graph import Graph, Phase
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.solvers.orders._exact_order import Life, Part, best_order
from memplan.solvers.orders._moved_order import lowest_order
from memplan.solvers.orders._order import Rules, is_captured, places


@dataclass(frozen=True, slots=True)
class Olla:
    """Integer programs, one a part.

    Attributes:
        most_ops: The most ops of an integer program.
    """

    name: ClassVar[str] = "olla"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "OLLA (2022), ROAM (2023): the order by integer programs on parts"
    needs: ClassVar[tuple[str, ...]] = ("highspy", "pulp")
    may: ClassVar[tuple[str, ...]] = ("keep",)

    most_ops: int = 24

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the step in an order that fits."""
        if answer := settled(problem):
            return answer
        graph = problem.graph
        if is_captured(graph):
            return _none(graph, "steps captured from a model keep their order")
        order, least_bytes = self.order(graph, problem.budget_bytes, limits)
        schedule = schedule_of(graph, order)
        peak_bytes = simulate(graph, schedule).peak_bytes
        if peak_bytes <= problem.budget_bytes:
            return Solution(
                status=Status.OPTIMAL, schedule=schedule, proven_bound_ns=graph.time_ns
            )
        return _none(
            graph,
            f"the lowest peak of an order that was found is {peak_bytes:,} bytes; "
            f"without recomputing none has less than {least_bytes:,}",
        )

    def order(self, graph: Graph, goal_bytes: int, limits: Limits) -> tuple[tuple[int, ...], int]:
        """Return an order with a peak of at most `goal_bytes`, or the lowest that was found.

        Returns:
            (order, least_bytes): no order has a peak below the latter, where it is proven.
        """
        deadline = time.monotonic() + limits.time_s
        rules, search = Rules(graph), _Search(graph, goal_bytes, deadline, limits)
        order: list[int] = list(range(len(graph.ops)))
        large = False
        for begin, end in segments(graph):
            if end - begin > self.most_ops:
                large = True
            elif end - begin > 1:
                order[begin:end] = search.improved(order, begin, end)
        if large and rules.peak_bytes(order) > goal_bytes:
            until = time.monotonic() + limits.time_s / 4
            listed = lowest_order(graph, goal_bytes, until, limits.seed)
            if rules.peak_bytes(listed) < rules.peak_bytes(order):
                order = list(listed)
            self._windows(rules, search, order)
        return tuple(order), max(graph.given_bytes, search.least_bytes)

    def _windows(self, rules: Rules, search: _Search, order: list[int]) -> None:
        """Order windows around the peak again until none of them lowers it."""
        while not search.is_over():
            before = _at_peak(rules, order)
            if before[0] <= search.goal_bytes:
                return
            at = int(rules.live_bytes(places(order)).argmax())
            for begin, end in self._around(rules.graph, at):
                new = list(order)
                new[begin:end] = search.improved(order, begin, end, window=True)
                if _at_peak(rules, new) < before:
                    order[:] = new
                    break
            else:
                return

    def _around(self, graph: Graph, at: int) -> Iterator[tuple[int, int]]:
        segment = next((b, e) for b, e in segments(graph) if b <= at < e)
        for ahead in (self.most_ops // 2, self.most_ops // 4, 3 * self.most_ops // 4):
            begin = max(segment[0], at - ahead)
            yield begin, min(segment[1], begin + self.most_ops)


class _Search:
    """What the integer programs share.

    Attributes:
        least_bytes: The largest peak that a whole part is proven to have in any order.
    """

    def __init__(self, graph: Graph, goal_bytes: int, deadline: float, limits: Limits) -> None:
        self.graph, self.goal_bytes, self.deadline = graph, goal_bytes, deadline
        self.limits, self.least_bytes = limits, 0

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline

    def improved(
        self, order: Sequence[int], begin: int, end: int, window: bool = False
    ) -> Sequence[int]:
        """Return `order[begin:end]` in the best order that was found."""
        if self.is_over():
            return order[begin:end]
        found = best_order(
            part_of(self.graph, order, begin, end),
            self.goal_bytes,
            self.deadline - time.monotonic(),
            self.limits.threads,
            self.limits.seed,
        )
        if not window:
            self.least_bytes = max(self.least_bytes, found.least_bytes)
        return found.ops or order[begin:end]


def segments(graph: Graph) -> list[tuple[int, int]]:
    """Return the parts of the captured order that must follow each other, as [begin, end)."""
    before = Rules(graph).before
    forward = sum(1 << i for i, op in enumerate(graph.ops) if op.phase is Phase.FORWARD)
    all_before: list[int] = []
    for i, op in enumerate(graph.ops):
        bits = 0 if op.phase is Phase.FORWARD else forward & ((1 << i) - 1)
        for j in before[i]:
            bits |= all_before[j] | (1 << j)
        all_before.append(bits)
    cuts, common = [len(graph.ops)], -1
    for i in range(len(graph.ops) - 1, 0, -1):
        common &= all_before[i]
        everything = (1 << i) - 1
        if common & everything == everything:
            cuts.append(i)
    cuts.append(0)
    return [(b, e) for e, b in pairwise(cuts)][::-1] if graph.ops else []


def part_of(graph: Graph, order: Sequence[int], begin: int, end: int) -> Part:
    """Return what runs at the places from `begin` to before `end`, and what it finds there."""
    ops, place = tuple(order[begin:end]), {v: p for p, v in enumerate(order)}
    before, inside = Rules(graph).before, frozenset(ops)
    beside_bytes, lives = graph.given_bytes, []
    for t, source in enumerate(graph.producer):
        tensor, readers = graph.tensors[t], graph.consumers[t]
        if source is None or place[source] >= end or not tensor.nbytes:
            continue
        outlives = tensor.pinned or any(place[v] >= end for v in readers)
        here = source in inside
        within = tuple(v for v in readers if v in inside)
        if outlives and not here:
            beside_bytes += tensor.nbytes
        elif here or within:
            lives.append(
                Life(
                    nbytes=tensor.nbytes,
                    source=source if here else None,
                    readers=() if outlives else within,
                    outlives=outlives,
                )
            )
    return Part(
        ops=ops,
        before={v: tuple(u for u in before[v] if u in inside) for v in ops},
        beside_bytes=beside_bytes,
        workspace_bytes={v: graph.ops[v].workspace_bytes for v in ops},
        lives=tuple(lives),
    )


def _at_peak(rules: Rules, order: Sequence[int]) -> tuple[int, int]:
    """Return the peak of an order and how many places reach it."""
    live = rules.live_bytes(places(order))
    return int(live.max()), int((live == live.max()).sum())


def _none(graph: Graph, reason: str) -> Solution:
    return Solution(status=Status.UNKNOWN, proven_bound_ns=graph.time_ns, reason=reason)
