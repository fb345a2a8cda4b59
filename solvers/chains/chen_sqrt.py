"""Checkpoint every k-th op of the forward pass, k being the root of their number.

Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (2016),
    section 4.2; carried over to graphs as the baselines "AP sqrt(n)" and "linearised sqrt(n)" of
    Checkmate (Jain et al., MLSys 2020), section 6.1.
Deviations: Both candidate sets, the articulation points of the forward graph and all its ops,
    are tried and the cheaper plan within the budget is returned. What is recomputed for one
    segment is kept until the backward pass no longer needs it, as Chen et al. do. In a graph
    without backward ops the forward pass ends where keeping everything peaks.
Exact?: No. It does not look at the budget at all; it fits or it does not.
Complexity: O(ops + reads).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

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
class ChenSqrt:
    """Segments of equal length.

    Attributes:
        candidates: `articulation` points, `all` forward ops, or `both`, each alone.
    """

    name: ClassVar[str] = "chen-sqrt"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Chen et al. 2016, sqrt(n) checkpoints"

    candidates: str = "both"

    def __post_init__(self) -> None:
        check_candidates(self.candidates)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheaper of the two plans that fits."""
        if refusal := below_limit(problem):
            return refusal
        graph = problem.graph
        end = forward_end(graph)
        plans = []
        for candidates in candidate_ops(graph, end, self.candidates):
            length = max(1, math.isqrt(len(candidates)))
            checkpoints = frozenset(candidates[length - 1 :: length])
            plans.append(sequence_keeping(graph, checkpoints, end))
        return cheapest_within(problem, plans)
