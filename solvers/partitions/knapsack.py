"""Between saving everything and saving the inputs only: a knapsack of what to run again.

Source: PyTorch, `torch/_functorch/partitioners.py`, `choose_saved_values_set`: the setting
    `activation_memory_budget` from 0 to 1, with the dynamic program of
    `torch/_functorch/_activation_checkpointing/knapsack.py`.
Deviations: The setting is a share of the saved bytes, not a peak, so all shares of a grid are
    tried and the cheapest plan within the budget is returned; keeping all is tried before. The
    profile of the graph replaces PyTorch's estimates of FLOPs. Without PyTorch's heuristics for
    fusion, as in `min_cut`.
Exact?: The knapsack is solved exactly for bytes in a thousand slots; the plan is not, as the
    time of an op that several others need again is counted with each.
Complexity: O(shares) minimum cuts and knapsacks of O(candidates x slots), vectorised.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy

from memplan.graph_capture.graph import Graph
from memplan.planner.cheapest import cheapest_within
from memplan.planner.checkpoints import forward_end, sequence_losing
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.partitions._min_cut import (
    is_compute_intensive,
    lost_without,
    saved_by_min_cut,
)

_SLOTS = 1000


@dataclass(frozen=True, slots=True)
class Knapsack:
    """Knapsacks of all sizes, each followed by a cut.

    Attributes:
        shares: How many values of the setting are tried between 0 and 1.
    """

    name: ClassVar[str] = "knapsack"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "PyTorch's activation_memory_budget: a knapsack before the min-cut"
    needs: ClassVar[tuple[str, ...]] = ("ortools",)

    shares: int = 20

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheapest plan of all shares that fits."""
        if answer := settled(problem):
            return answer
        deadline = time.monotonic() + limits.time_s
        return cheapest_within(problem, self._plans(problem.graph, deadline))

    def _plans(self, graph: Graph, deadline: float) -> Iterator[tuple[int, ...]]:
        end = forward_end(graph)
        forced = {i for i, op in enumerate(graph.ops[:end]) if not op.recomputable}
        banned = _banned(graph, end)
        # What the default saves is what there is to choose from.
        default = saved_by_min_cut(graph, end, forced | banned)
        candidates = sorted(i for i in banned if default.intersection(graph.ops[i].outputs))
        sizes = [_bytes_of(graph, i, default) for i in candidates]
        times_ns = [graph.ops[i].time_ns for i in candidates]
        tried: set[frozenset[int]] = set()
        for k in range(self.shares, -1, -1):
            chosen = fill(sizes, times_ns, sum(sizes) * k // self.shares)
            again = {i for at, i in enumerate(candidates) if at not in chosen}
            once = forced | (banned - again)
            saved = saved_by_min_cut(graph, end, once)
            if saved not in tried:
                tried.add(saved)
                yield sequence_losing(graph, lost_without(graph, end, saved), end)
            if time.monotonic() > deadline:
                return


def _banned(graph: Graph, end: int) -> set[int]:
    """Return the ops that the default never runs again although it could.

    Where no op has a target that says so, as in graphs from files, each counts as
    compute-intensive.
    """
    able = [i for i, op in enumerate(graph.ops[:end]) if op.recomputable]
    heavy = {i for i in able if is_compute_intensive(graph.ops[i].target)}
    return heavy or set(able)


def _bytes_of(graph: Graph, i: int, tensors: frozenset[int]) -> int:
    return sum(graph.tensors[t].nbytes for t in graph.ops[i].outputs if t in tensors)


def fill(sizes: Sequence[int], values: Sequence[int], capacity: int) -> frozenset[int]:
    """Return the items of the greatest value that fit, by the 0-1 knapsack program.

    Sizes are rounded up to a thousandth of the capacity.

    >>> sorted(fill([3, 4, 5], [30, 50, 60], 8))
    [0, 2]
    """
    if sum(sizes) <= capacity:
        return frozenset(range(len(sizes)))
    unit = max(1, -(-capacity // _SLOTS))
    slots = capacity // unit
    best = numpy.zeros(slots + 1, dtype=numpy.int64)
    taken = numpy.zeros((len(sizes), slots + 1), dtype=bool)
    for i, (size, value) in enumerate(zip(sizes, values, strict=True)):
        need = -(-size // unit)
        if need > slots:
            continue
        with_it = best[: slots + 1 - need] + value
        taken[i, need:] = with_it > best[need:]
        best[need:] = numpy.maximum(best[need:], with_it)
    chosen, left = set(), slots
    for i in range(len(sizes) - 1, -1, -1):
        if taken[i, left]:
            chosen.add(i)
            left -= -(-sizes[i] // unit)
    return frozenset(chosen)
