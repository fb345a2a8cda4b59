"""The compact integer program of MONeT: only forward ops run again, only before backward ops.

Source: Shah, Wu, Mohan, Chidambaram, Kraehenbuehl, "Memory Optimization for Deep Networks"
    (ICLR 2021), section 4: a schedule (s, r) over stages of the backward pass, the memory of
    recomputing (local tensors) and of backward ops, without variables that free tensors.
Deviations: Operators have one implementation, and none works in place: the paper also chooses
    among those of convolutions and activations, which a captured graph has decided. Whether a
    tensor is still read further on in a stage is one falling chain of continuous variables a
    tensor and stage in place of the paper's products; bytes in use are running sums. Ops of the
    optimizer are stages like those of the backward pass. The start is the greedy replay's
    schedule, or Chen's where the model cannot express that one.
Exact?: In its own space only: the forward pass runs through once, backward ops never run again,
    and between two of them forward ops run again in captured order, each once at most. The bound
    in that space is `model_bound_ns`; OPTIMAL only where nothing is recomputed.
Complexity: O(backward ops x forward ops) binaries, where Checkmate has the square of their sum.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.checkpoints import forward_end
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver
from memplan.solvers.programs._milp import Outcome, solve_milp
from memplan.solvers.programs._monet_model import MonetModel

_BUILT_PER_S = 5_000
"""Binaries whose rows are built in a second, cautiously: PuLP knows no time limit."""


@dataclass(frozen=True, slots=True)
class Monet:
    """The integer program, started from a schedule of its own space.

    Attributes:
        starts: Solvers that are asked for a start, in this order.
        max_ops: Larger graphs are refused with UNKNOWN.
    """

    name: ClassVar[str] = "monet"
    kind: ClassVar[str] = "exact"
    source: ClassVar[str] = "Shah et al., MONeT (ICLR 2021), the compact integer program"
    needs: ClassVar[tuple[str, ...]] = ("highspy", "pulp")

    starts: tuple[str, ...] = ("greedy", "chen-greedy")
    max_ops: int = 400

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best schedule of the model, or its start where that is better."""
        if answer := settled(problem):
            return answer
        graph, began = problem.graph, time.monotonic()
        end = forward_end(graph)
        if len(graph.ops) > self.max_ops:
            return _answer(problem, None, f"{len(graph.ops)} ops are more than {self.max_ops}")
        if end * (len(graph.ops) - end) / _BUILT_PER_S > limits.time_s:
            return _answer(problem, None, "no time to build the model")
        model = MonetModel(problem, end)
        start = self._start(problem, model, limits, began)
        left_s = limits.time_s - (time.monotonic() - began)
        result = solve_milp(
            model.problem, left_s, limits.threads, limits.seed, model.start_values(start)
        )
        if result.outcome is Outcome.INFEASIBLE:
            return _answer(problem, None, "no schedule of the model fits the budget")
        found = None
        if result.outcome is not Outcome.UNKNOWN:
            found = model.schedule(result.values)
        model_bound_ns = graph.time_ns + model.scale.bound_ns(result.bound)
        if found is not None and result.outcome is Outcome.OPTIMAL:
            model_bound_ns = simulate(graph, found).time_ns
        best = _cheapest(problem, found, start)
        return _answer(problem, best, "no schedule found in time", model_bound_ns)

    def _start(
        self, problem: Problem, model: MonetModel, limits: Limits, began: float
    ) -> Schedule | None:
        for name in self.starts:
            left_s = limits.time_s - (time.monotonic() - began)
            quick = Limits(time_s=max(0.1, left_s / 4), seed=limits.seed, threads=limits.threads)
            schedule = load_solver(name).solve(problem, quick).schedule
            if schedule is not None and model.expresses(schedule) is not None:
                return schedule
        return None


def _cheapest(problem: Problem, *schedules: Schedule | None) -> Schedule | None:
    """Return the fastest within the budget; the model's own may pass it by the tolerance."""
    timelines = [(simulate(problem.graph, s), s) for s in schedules if s is not None]
    fitting = [(t.time_ns, s) for t, s in timelines if t.peak_bytes <= problem.budget_bytes]
    return min(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _answer(
    problem: Problem, best: Schedule | None, reason: str, model_bound_ns: int | None = None
) -> Solution:
    graph = problem.graph
    if best is None:
        return Solution(
            status=Status.UNKNOWN,
            proven_bound_ns=graph.time_ns,
            model_bound_ns=model_bound_ns,
            reason=reason,
        )
    optimal = simulate(graph, best).time_ns == graph.time_ns
    return Solution(
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        schedule=best,
        proven_bound_ns=graph.time_ns,
        model_bound_ns=model_bound_ns,
    )
