"""Save the fewest bytes from which cheap ops can make what the backward pass reads.

Source: PyTorch, `torch/_functorch/partitioners.py`, `min_cut_rematerialization_partition`, the
    default of `torch.compile`; described by H. He and S. Zhang, "Min-cut optimal(*)
    recomputation (i.e. activation checkpointing) with AOTAutograd" (2022).
Deviations: Only its objective: fewest saved bytes, and compute-intensive and random ops never run
    twice. Its heuristics for fusion (no reductions, no long fused chains, weights that grow with
    the distance to the backward pass) are left out, as fusion is up to a later compiler. A saved
    storage counts once, whatever views it has.
Exact?: In saved bytes, yes. It looks at neither time nor budget; it fits or it does not.
Complexity: One minimum cut over the forward tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.cheapest import cheapest_within
from memplan.planner.checkpoints import forward_end, sequence_losing
from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution
from memplan.solvers.partitions._min_cut import (
    is_compute_intensive,
    lost_without,
    saved_by_min_cut,
)


@dataclass(frozen=True, slots=True)
class MinCut:
    """One cut, and the plan that follows it.

    Attributes:
        aggressive: Whether compute-intensive ops may run again as well.
    """

    name: ClassVar[str] = "min-cut"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "PyTorch's min-cut partitioner: fewest saved bytes"
    needs: ClassVar[tuple[str, ...]] = ("ortools",)

    aggressive: bool = False

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the plan of the minimum cut if it fits."""
        if refusal := below_limit(problem):
            return refusal
        graph = problem.graph
        end = forward_end(graph)
        once = {
            i
            for i, op in enumerate(graph.ops[:end])
            if not op.recomputable or (not self.aggressive and is_compute_intensive(op.target))
        }
        saved = saved_by_min_cut(graph, end, once)
        plan = sequence_losing(graph, lost_without(graph, end, saved), end)
        return cheapest_within(problem, [plan])
