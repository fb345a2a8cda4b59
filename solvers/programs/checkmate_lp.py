"""Checkmate's linear relaxation with two-phase rounding.

Source: Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization"
    (MLSys 2020), section 5: algorithm 2, its closed form of R for a given S, and the margin of a
    tenth of the budget.
Deviations: The relaxation is that of `checkmate`. Besides the thresholds 0.1 .. 0.9, S is drawn at
    random, each entry kept with the probability of its value, some times. The margin is taken
    of what the budget leaves beside what is given; where the relaxation then has no solution, it
    is solved again without a margin.
Exact?: No. The relaxation's optimum is in the model of stages only, so it is no bound; OPTIMAL
    only where nothing is recomputed.
Complexity: A linear program of O(ops^2) columns and O(ops x reads) rows; a rounding is
    O(ops x reads).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import le
from typing import ClassVar, TypeAlias

from memplan.errors import UsageError
from memplan.planner.cheapest import cheapest_within
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution, Status
from memplan.solvers.programs._milp import Outcome, solve_milp
from memplan.solvers.programs._stage_model import StageModel
from memplan.solvers.programs._stages import Stages

_BUILT_PER_S = 5_000
"""Decisions whose rows are built in a second, cautiously: PuLP knows no time limit."""
_TOLERANCE = 1e-6
_ROUNDINGS = ("both", "deterministic", "random")

Values: TypeAlias = dict[tuple[int, int], float]
"""S of the relaxation by stage and tensor."""


@dataclass(frozen=True, slots=True)
class CheckmateLp:
    """Solve, round, simulate.

    Attributes:
        share: The share of the free budget that the relaxation may use.
        rounding: `deterministic` by the nine thresholds, `random` by draws, or `both`.
        draws: How many times S is drawn at random.
        max_ops: Larger graphs are refused with UNKNOWN.
    """

    name: ClassVar[str] = "checkmate-lp"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "Jain et al., Checkmate (MLSys 2020), LP with two-phase rounding"
    needs: ClassVar[tuple[str, ...]] = ("highspy", "pulp")

    share: float = 0.9
    rounding: str = "both"
    draws: int = 20
    max_ops: int = 250

    def __post_init__(self) -> None:
        if self.rounding not in _ROUNDINGS:
            raise UsageError(f"no rounding {self.rounding!r}; choose {', '.join(_ROUNDINGS)}")

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheapest rounding that fits."""
        if answer := settled(problem):
            return answer
        graph, deadline = problem.graph, time.monotonic() + limits.time_s
        stages = Stages(graph) if len(graph.ops) <= self.max_ops else None
        if stages is None or stages.decisions / _BUILT_PER_S > limits.time_s:
            return _unknown(problem, f"{len(graph.ops)} ops are too many in the time there is")
        for share in (self.share, 1.0):
            values = _relaxed(problem, stages, share, deadline, limits)
            if values is not None:
                plans = self._plans(stages, values, random.Random(limits.seed))
                return cheapest_within(problem, plans)
        return _unknown(problem, "the relaxation has no solution, or none in time")

    def _plans(
        self, stages: Stages, values: Values, rng: random.Random
    ) -> Iterator[tuple[int, ...]]:
        for tenth in range(1, 10) if self.rounding != "random" else ():
            yield rounded(stages, values, partial(le, tenth / 10))
        for _ in range(self.draws if self.rounding != "deterministic" else 0):
            yield rounded(stages, values, lambda value: rng.random() < value)


def rounded(stages: Stages, values: Values, keep: Callable[[float], bool]) -> tuple[int, ...]:
    """Return the ops to run if a tensor is carried into a stage where `keep` says so of S.

    Algorithm 2: first S alone; then the fewest runs for it, which are unique.
    """
    count = len(stages.graph.ops)
    # The relaxation is solved up to a tolerance.
    carried = [
        {k for k in stages.carried[t] if keep(values[t, k] + _TOLERANCE)} for t in range(count)
    ]
    sequence: list[int] = []
    for t in range(count):
        later = carried[t + 1] if t + 1 < count else set()
        made = (stages.source[k] for k in sorted(later - carried[t]))
        runs = {t, *(i for i in made if stages.may_run(t, i))}
        for v in range(t, -1, -1):
            if v in runs:
                sources = (stages.source[k] for k in stages.inputs[v] if k not in carried[t])
                runs.update(i for i in sources if stages.may_run(t, i))
        sequence += sorted(runs)
    return tuple(sequence)


def _relaxed(
    problem: Problem, stages: Stages, share: float, deadline: float, limits: Limits
) -> Values | None:
    given_bytes = problem.graph.given_bytes
    budget_bytes = given_bytes + int(share * (problem.budget_bytes - given_bytes))
    smaller = Problem(graph=problem.graph, budget_bytes=budget_bytes)
    model = StageModel(smaller, stages, relaxed=True)
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        return None
    result = solve_milp(model.problem, left_s, limits.threads, limits.seed)
    if result.outcome is not Outcome.OPTIMAL:
        return None
    return {key: result.values[variable.name] for key, variable in model.s.items()}


def _unknown(problem: Problem, reason: str) -> Solution:
    bound_ns = problem.graph.time_ns
    return Solution(status=Status.UNKNOWN, proven_bound_ns=bound_ns, reason=reason)
