"""Retention intervals in CP-SAT: when each tensor is made, and until when it stays.

Source: Bartan, Li, Teague, Lott, Dilkina, "Moccasin: Efficient Tensor Rematerialization for Neural
    Networks" (ICML 2023), section 5: C intervals a node over the events t (t + 1) / 2 + k, where
    stage t may run node k <= t again and ends with the first run of node t.
Deviations: Who reads which interval is one literal for each reader and interval instead of
    reservoirs. Tensors have ends of their own, so that an op may have several outputs; pinned
    ones, workspace and outputs that nobody reads have fixed intervals. The greedy replay's
    schedule is a complete hint, and an op gets as many intervals as it has runs there; so there
    is no first phase that looks for feasibility, and presolve is off, which would lose the hint.
    Interval lengths are free.
Exact?: In its own space only: between two first runs ops run again in captured order, each once at
    most and C times in all. The bound in that space is `model_bound_ns`; OPTIMAL only where
    nothing is recomputed, as it holds for no other schedules.
Complexity: O(C^2 reads) literals over O(ops^2) events; for about 250 irregular ops.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver
from memplan.planner.verify import is_valid
from memplan.solvers.programs._intervals import IntervalModel
from memplan.solvers.programs._stages import Stages


@dataclass(frozen=True, slots=True)
class Moccasin:
    """The constraint program, started from a schedule.

    Attributes:
        copies: C, the most runs of an op; more where the start has more.
        start: A schedule to start from, ignored unless valid; None to ask the greedy replay.
        presolve: Whether CP-SAT may simplify the model first.
        max_ops: Larger graphs are refused with UNKNOWN.
    """

    name: ClassVar[str] = "moccasin"
    kind: ClassVar[str] = "exact"
    source: ClassVar[str] = "Bartan et al., Moccasin (ICML 2023), retention intervals in CP-SAT"
    needs: ClassVar[tuple[str, ...]] = ("ortools",)

    copies: int = 2
    start: Schedule | None = field(default=None, repr=False)
    presolve: bool = False
    max_ops: int = 600

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best schedule in stages, or the start where that is better."""
        if refusal := below_limit(problem):
            return refusal
        graph, began = problem.graph, time.monotonic()
        best = self._first(problem, limits)
        if best is not None and simulate(graph, best).time_ns == graph.time_ns:
            return Solution(status=Status.OPTIMAL, schedule=best, proven_bound_ns=graph.time_ns)
        if len(graph.ops) > self.max_ops:
            return _answer(problem, best, None, f"more than {self.max_ops} ops")
        model = IntervalModel(problem, Stages(graph), self.copies, best)
        left_s = limits.time_s - (time.monotonic() - began)
        found, bound_ns = _run(model, max(0.1, left_s), limits, self.presolve)
        if found is not None:
            schedule = schedule_of(graph, found)
            better = best is None or (
                simulate(graph, schedule).time_ns < simulate(graph, best).time_ns
            )
            best = schedule if better else best
        return _answer(problem, best, bound_ns, "no schedule in intervals found")

    def _first(self, problem: Problem, limits: Limits) -> Schedule | None:
        if self.start is not None:
            return self.start if is_valid(problem, self.start) else None
        quick = Limits(time_s=limits.time_s / 4, seed=limits.seed, threads=limits.threads)
        return load_solver("greedy").solve(problem, quick).schedule


def _run(
    model: IntervalModel, time_s: float, limits: Limits, presolve: bool
) -> tuple[tuple[int, ...] | None, int | None]:
    """Return a sequence and the bound of the model, each None where there is none."""
    from ortools.sat.python import cp_model

    solver: Any = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_s
    solver.parameters.num_workers = limits.threads
    solver.parameters.random_seed = limits.seed
    solver.parameters.cp_model_presolve = presolve
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return None, None
    bound_ns = model.bound_ns(solver.best_objective_bound)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound_ns
    return model.sequence(solver), bound_ns


def _answer(
    problem: Problem, best: Schedule | None, model_bound_ns: int | None, reason: str
) -> Solution:
    graph = problem.graph
    if best is None:
        return Solution(
            status=Status.UNKNOWN,
            proven_bound_ns=graph.time_ns,
            model_bound_ns=model_bound_ns,
            reason=reason,
        )
    time_ns = simulate(graph, best).time_ns
    if model_bound_ns is not None and model_bound_ns > time_ns:
        # The start may be of no model's space.
        model_bound_ns = None
    return Solution(
        status=Status.OPTIMAL if time_ns == graph.time_ns else Status.FEASIBLE,
        schedule=best,
        proven_bound_ns=graph.time_ns,
        model_bound_ns=model_bound_ns,
        stats={"runs": len(sequence_of(best))},
    )
