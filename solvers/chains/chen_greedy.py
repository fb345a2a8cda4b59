"""Checkpoint whenever the forward tensors since the last checkpoint exceed b bytes.

Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (2016),
    section 4.4 and appendix B (a search over b); carried over to graphs as "AP greedy" and
    "linearised greedy" by Checkmate (Jain et al., MLSys 2020), section 6.1.
Deviations: b runs through a fixed grid that is finer for small b, and over both candidate sets
    (articulation points, all forward ops); the cheapest plan within the budget is returned.
    Otherwise as `chen_sqrt`.
Exact?: No.
Complexity: O(sizes (ops + reads)).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from memplan.graph_capture.graph import Graph
from memplan.planner.cheapest import cheapest_within
from memplan.planner.checkpoints import (
    candidate_ops,
    check_candidates,
    forward_end,
    sequence_keeping,
)
from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution


@dataclass(frozen=True, slots=True)
class ChenGreedy:
    """Segments of equal bytes.

    Attributes:
        sizes: How many values of b are tried.
        candidates: `articulation` points, `all` forward ops, or `both`, each alone.
    """

    name: ClassVar[str] = "chen-greedy"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Chen et al. 2016, greedy checkpoints with a sweep over b"

    sizes: int = 32
    candidates: str = "both"

    def __post_init__(self) -> None:
        check_candidates(self.candidates)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheapest plan of the sweep that fits."""
        if refusal := below_limit(problem):
            return refusal
        deadline = time.monotonic() + limits.time_s
        return cheapest_within(problem, self._plans(problem.graph, deadline))

    def _plans(self, graph: Graph, deadline: float) -> Iterator[tuple[int, ...]]:
        end = forward_end(graph)
        total_bytes = sum(_forward_bytes(graph, i) for i in range(end))
        tried: set[frozenset[int]] = set()
        for candidates in map(frozenset, candidate_ops(graph, end, self.candidates)):
            for k in range(self.sizes):
                segment_bytes = total_bytes * k * k // self.sizes**2
                checkpoints = _checkpoints(graph, candidates, end, segment_bytes)
                if checkpoints in tried:
                    continue
                tried.add(checkpoints)
                yield sequence_keeping(graph, checkpoints, end)
                if time.monotonic() > deadline:
                    return


def _checkpoints(
    graph: Graph, candidates: frozenset[int], end: int, segment_bytes: int
) -> frozenset[int]:
    chosen, since_bytes = [], 0
    for i in range(end):
        since_bytes += _forward_bytes(graph, i)
        if i in candidates and since_bytes > segment_bytes:
            chosen.append(i)
            since_bytes = 0
    return frozenset(chosen)


def _forward_bytes(graph: Graph, i: int) -> int:
    """Freeable bytes that op `i` makes."""
    tensors = graph.tensors
    return sum(tensors[t].nbytes for t in graph.ops[i].outputs if not tensors[t].pinned)
