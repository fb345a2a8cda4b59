"""The MILP of Checkmate: which ops run, and which tensors are kept, in each stage.

Source: Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization"
    (MLSys 2020), section 4: equations 1b, 1c, 2, 3, 5 and, for the stages, 8a to 8c.
Deviations: FREE is continuous and only bounded from above; freeing helps, so its lower bounds
    (7b) never bind, and only R and S are binary. At most one FREE a tensor and stage, and none
    with S[t+1] (theorem 4.1), is a cut. With `paper`, FREE has the rows of the paper instead. S
    belongs to tensors and R to ops, so that an op may have several outputs; S[t, k] + R[t,
    producer of k] <= 1, because nothing reads the older instance. Pinned tensors are constants;
    workspace is in the row of its op; an op that must not run twice has no R. The start is the
    greedy replay's schedule.
Exact?: In its own space only: between two first runs ops are recomputed in captured order, each
    at most once. The bound in that space is `model_bound_ns`. It is no bound for every schedule
    of the captured order: let a stage need A = f(a) and C = g(c), with a, c large and small A,
    C, in the order a, c, A, C. In captured order a and c are on the device together; running
    a, A, c, C is not expressible, though it may be the only way within the budget. So
    `proven_bound_ns` comes from the relaxation in `_stage_bound`, which has no such order, and
    OPTIMAL is claimed where the schedule meets it. A model without solution proves nothing.
Complexity: O(ops^2) binaries, O(ops x reads) rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar

from memplan.planner.limits import below_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule, keeps_order
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver
from memplan.planner.verify import is_valid
from memplan.solvers.programs._milp import Outcome, solve_milp
from memplan.solvers.programs._stage_bound import StageBound, stage_bound
from memplan.solvers.programs._stage_model import StageModel
from memplan.solvers.programs._stages import Stages

_BUILT_PER_S = 5_000
"""Decisions whose rows are built in a second, cautiously: PuLP knows no time limit."""


@dataclass(frozen=True, slots=True)
class Checkmate:
    """The MILP, started from a schedule.

    Attributes:
        start: A schedule to start from, ignored unless valid and in captured order; None to ask
            the greedy replay.
        prove: Whether to spend part of the time on `proven_bound_ns`.
        paper: Whether FREE is binary, in the rows of the paper.
        max_ops: Larger graphs are refused with UNKNOWN.
    """

    name: ClassVar[str] = "checkmate"
    kind: ClassVar[str] = "exact"
    source: ClassVar[str] = "Jain et al., Checkmate (MLSys 2020), MILP with FREE continuous"
    needs: ClassVar[tuple[str, ...]] = ("highspy", "pulp")

    start: Schedule | None = field(default=None, repr=False)
    prove: bool = True
    paper: bool = False
    max_ops: int = 250

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best schedule in stages, or the start where that is better."""
        if refusal := below_limit(problem):
            return refusal
        graph, began = problem.graph, time.monotonic()
        best = self._first(problem, limits)
        if best is not None and simulate(graph, best).time_ns == graph.time_ns:
            return Solution(status=Status.OPTIMAL, schedule=best, proven_bound_ns=graph.time_ns)
        if len(graph.ops) > self.max_ops:
            return _answer(problem, best, f"{len(graph.ops)} ops are more than {self.max_ops}")
        stages = Stages(graph)

        def left_s() -> float:
            return limits.time_s - (time.monotonic() - began)

        if left_s() < stages.decisions / _BUILT_PER_S:
            return _answer(problem, best, f"no time to build {stages.decisions:,} variables")
        proven = StageBound(bound_ns=graph.time_ns)
        if self.prove:
            proven = stage_bound(problem, stages, left_s() / 3, limits)
        if proven.infeasible:
            return _answer(problem, None, "", proven)
        if best is not None and simulate(graph, best).time_ns <= proven.bound_ns:
            return _answer(problem, best, "", proven)
        model = StageModel(problem, stages, paper=self.paper)
        result = solve_milp(
            model.problem, left_s(), limits.threads, limits.seed, model.start_values(best)
        )
        if result.outcome is Outcome.INFEASIBLE:
            return _answer(problem, best, "no schedule in stages fits the budget", proven)
        model_bound_ns = graph.time_ns + model.scale.bound_ns(result.bound)
        if result.outcome is not Outcome.UNKNOWN:
            found = model.schedule(result.values)
            if result.outcome is Outcome.OPTIMAL:
                model_bound_ns = simulate(graph, found).time_ns
            best = _cheaper(problem, best, found)
        return _answer(problem, best, "", proven, model_bound_ns)

    def _first(self, problem: Problem, limits: Limits) -> Schedule | None:
        if self.start is not None:
            usable = keeps_order(self.start) and is_valid(problem, self.start)
            return self.start if usable else None
        quick = Limits(time_s=limits.time_s / 4, seed=limits.seed, threads=limits.threads)
        return load_solver("greedy").solve(problem, quick).schedule


def _answer(
    problem: Problem,
    best: Schedule | None,
    reason: str,
    proven: StageBound | None = None,
    model_bound_ns: int | None = None,
) -> Solution:
    proven = proven or StageBound(bound_ns=problem.graph.time_ns)
    status, minimum_bytes = Status.UNKNOWN, None
    if proven.infeasible:
        status, minimum_bytes = Status.INFEASIBLE, problem.budget_bytes + 1
        reason = "the relaxation of all schedules of the captured order has no solution"
    elif best is not None:
        time_ns = simulate(problem.graph, best).time_ns
        status = Status.OPTIMAL if time_ns <= proven.bound_ns else Status.FEASIBLE
    elif not reason:
        reason = "no schedule found in time"
    return Solution(
        status=status,
        schedule=best,
        proven_bound_ns=proven.bound_ns,
        model_bound_ns=model_bound_ns,
        minimum_bytes=minimum_bytes,
        reason=reason,
    )


def _cheaper(problem: Problem, best: Schedule | None, new: Schedule) -> Schedule | None:
    """Return the better of the two; `new` may pass the budget by the MILP's tolerance."""
    timeline = simulate(problem.graph, new)
    if timeline.peak_bytes > problem.budget_bytes:
        return best
    if best is not None and simulate(problem.graph, best).time_ns <= timeline.time_ns:
        return best
    return new
