"""Recompute what is light, and move what is heavy when room is needed.

Source: Wang et al., "SuperNeurons: Dynamic GPU Memory Management for Training Deep Neural
    Networks", PPoPP 2018 (row 9 of the survey of systems).
Deviations: What is recomputed for a segment stays until the backward pass no longer needs it
    (its speed-centric mode). Convolution workspaces stay as they are.
Exact?: No.
Complexity: O(ops + transfers x ops between).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.checkpoints import forward_end
from memplan.planner.moves import Timing
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers._on_demand import evict_on_demand, least_recent
from memplan.solvers._swap_rules import Proposal, heavy_ops, kept_but, solve_by, without_swap


@dataclass(frozen=True, slots=True)
class Superneurons:
    """Checkpoints are the outputs of heavy ops, in a cache of what the budget leaves."""

    name: ClassVar[str] = "superneurons"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = (
        "SuperNeurons (PPoPP 2018): light ops again, heavy outputs in an LRU cache"
    )
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the first of the two that fits: light ops alone, then with moves."""
        if answer := without_swap(problem):
            return answer
        graph, heavy = problem.graph, heavy_ops(problem.graph)
        light = frozenset(
            t
            for i, op in enumerate(graph.ops[: forward_end(graph)])
            if i not in heavy and op.recomputable
            for t in op.outputs
        )
        sequence, _ = kept_but(graph, light, frozenset())
        moves = evict_on_demand(problem, least_recent, early=True, sequence=sequence)
        timing = Timing(ahead=1, heavy=heavy)
        proposals = (
            Proposal(moves=(), sequence=sequence),
            Proposal(moves=moves, sequence=sequence, timing=timing),
        )
        return solve_by(problem, proposals, first=True)
