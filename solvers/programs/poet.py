"""POET: recomputing and paging in one MILP, for the least energy.

Source: Patil, Jain, Dutta, Stoica, Gonzalez, "POET: Training Neural Networks on Tiny Devices with
    Integrated Rematerialization and Paging" (ICML 2022), section 4: Checkmate's stages with
    variables for what lies in the second memory and for pages in and out, the energy of runs and
    pages as the objective, and a limit on the time of all runs.
Deviations: The stages are those of `checkmate`. A graph has times and no joules: an op takes
    energy in proportion to its time, a page to that of its transfer alone, `page_power` times as
    much a second. As published, transfers take no time in the model; what was chosen is then run
    with transfers beside the ops, which wait for them. The second memory has its capacity. The
    start is the greedy replay's schedule; without a second memory it is Checkmate's MILP.
Exact?: In its own space and for its own objective. OPTIMAL only where nothing is recomputed and
    nothing waits.
Complexity: O(ops^2) binaries, up to twice as many as Checkmate's; for about a hundred ops.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution, load_solver
from memplan.solvers.programs._milp import Outcome, solve_milp
from memplan.solvers.programs._poet_model import PoetModel
from memplan.solvers.programs._stages import Stages
from memplan.solvers.swaps._swap_rules import Proposal, solution_of, solve_by, without_swap

_BUILT_PER_S = 2_500
"""Decisions whose rows are built in a second, cautiously: PuLP knows no time limit."""


@dataclass(frozen=True, slots=True)
class Poet:
    """The MILP, and the run of what it chose.

    Attributes:
        page_power: Power of a transfer as a share of the power of an op.
        longest: The most time that all runs may take, as a multiple of the step's; None for any.
        max_ops: Larger graphs are refused with UNKNOWN.
    """

    name: ClassVar[str] = "poet"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "Patil et al., POET (ICML 2022), MILP of recomputing and paging"
    needs: ClassVar[tuple[str, ...]] = ("highspy", "pulp")
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    page_power: float = 1.0
    longest: float | None = None
    max_ops: int = 150

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the run of what the MILP chose."""
        if answer := without_swap(problem):
            if problem.tiers or answer.schedule is not None or answer.minimum_bytes is not None:
                return answer
            return load_solver("checkmate", max_ops=self.max_ops).solve(problem, limits)
        graph, began = problem.graph, time.monotonic()
        stages = Stages(graph)
        if len(graph.ops) > self.max_ops or stages.decisions / _BUILT_PER_S > limits.time_s:
            reason = f"{len(graph.ops)} ops are too many in the time there is"
            return solution_of(problem, None, reason, {})
        tier = problem.tiers[0]
        inner = replace(problem, budget_bytes=problem.budget_bytes - tier.buffer_bytes)
        quick = Limits(time_s=limits.time_s / 8, seed=limits.seed, threads=limits.threads)
        start = load_solver("greedy").solve(replace(inner, tiers=()), quick).schedule
        model = self._model(inner, stages)
        left_s = limits.time_s - (time.monotonic() - began)
        result = solve_milp(
            model.problem, left_s, limits.threads, limits.seed, model.start_values(start)
        )
        if result.outcome is Outcome.INFEASIBLE:
            return solution_of(problem, None, "no schedule in stages fits the budget", {})
        if result.outcome is Outcome.UNKNOWN:
            return solution_of(problem, None, "no schedule found in time", {})
        return solve_by(problem, self._proposals(model, result.values))

    def _model(self, problem: Problem, stages: Stages) -> PoetModel:
        graph, tier = problem.graph, problem.tiers[0]
        sizes = {k: graph.tensors[k].nbytes for k in stages.tensors}
        return PoetModel(
            problem,
            stages,
            [op.time_ns for op in graph.ops],
            {k: round(self.page_power * tier.write_ns(size)) for k, size in sizes.items()},
            {k: round(self.page_power * tier.read_ns(size)) for k, size in sizes.items()},
            None if self.longest is None else round(self.longest * graph.time_ns),
        )

    def _proposals(self, model: PoetModel, values: Mapping[str, float]) -> Iterator[Proposal]:
        sequence, moves = model.paged(values)
        yield Proposal(moves=moves, sequence=sequence)
