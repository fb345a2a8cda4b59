"""Runs a PuLP model in HiGHS, or in CBC where HiGHS is not installed."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from memplan.errors import SolverUnavailable


class Outcome(Enum):
    """What the MILP solver proved about the model."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MilpResult:
    """The end of one MILP.

    Attributes:
        values: Of the variables by name; empty where there is no solution.
        bound: No solution has a smaller objective; minus infinity where unknown.
    """

    outcome: Outcome
    values: Mapping[str, float]
    bound: float


_LARGEST_COST = 10**6
"""Costs are scaled so that the whole step costs at most this: larger numbers cost accuracy."""


@dataclass(frozen=True, slots=True)
class CostScale:
    """Integer costs of a MILP's objective where the step allows it, else floats.

    Attributes:
        unit_ns: Nanoseconds of one unit of the objective.
        exact: Whether every op's time is a whole number of units.
    """

    unit_ns: float
    exact: bool

    @classmethod
    def of(cls, times_ns: Sequence[int]) -> CostScale:
        """Return the scale for a step whose ops take `times_ns`."""
        gcd_ns, step_ns = math.gcd(*times_ns) or 1, sum(times_ns)
        if step_ns <= gcd_ns * _LARGEST_COST:
            return cls(float(gcd_ns), True)
        return cls(step_ns / _LARGEST_COST, False)

    def bound_ns(self, objective: float) -> int:
        """Return whole nanoseconds that a dual bound proves, up to the MILP's tolerance."""
        if not math.isfinite(objective):
            return 0
        slack = 1e-6 * max(1.0, abs(objective))
        if self.exact:
            return max(0, math.ceil(objective - slack)) * int(self.unit_ns)
        return max(0, math.floor((objective - slack) * self.unit_ns))


def add_row(model: Any, terms: Sequence[tuple[Any, float]], sense: str, right: float) -> None:
    """Add `sum of coefficient x variable` <= or == `right` to a `pulp.LpProblem`.

    Several times faster than PuLP's operators, which copy an expression at each step.

    Args:
        model: The problem.
        terms: Variables, each once, with their coefficients.
        sense: `<=` or `==`.
        right: The right-hand side.
    """
    import pulp

    relation = pulp.LpConstraintLE if sense == "<=" else pulp.LpConstraintEQ
    expression = pulp.LpAffineExpression(terms)
    model.addConstraint(pulp.LpConstraint(expression, sense=relation, rhs=right))


def solve_milp(
    model: Any, time_s: float, threads: int, seed: int, start: Mapping[str, float] | None = None
) -> MilpResult:
    """Minimise a `pulp.LpProblem`.

    Args:
        model: The problem.
        time_s: Stop after this time.
        threads: Of the solver.
        seed: Of the solver's random choices.
        start: A feasible point by variable name, complete, to start from.

    Raises:
        SolverUnavailable: Neither HiGHS nor CBC is installed.
    """
    if not model.variables():
        # Nothing to decide, and solvers differ in what they call that.
        holds = model.valid(1e-9)
        outcome = Outcome.OPTIMAL if holds else Outcome.INFEASIBLE
        return MilpResult(outcome=outcome, values={}, bound=0.0 if holds else float("inf"))
    try:
        import highspy  # noqa: F401
    except ImportError:
        return _solve_cbc(model, time_s, threads, start)
    return _solve_highs(model, time_s, threads, seed, start)


def _solve_highs(
    model: Any, time_s: float, threads: int, seed: int, start: Mapping[str, float] | None
) -> MilpResult:
    import highspy
    import pulp

    solver = pulp.HiGHS(
        msg=False,
        threads=threads,
        timeLimit=max(0.1, time_s),
        gapRel=0.0,
        gapAbs=1e-6,
        random_seed=seed,
        parallel="on" if threads > 1 else "off",
    )
    # PuLP has no warm start for HiGHS: build with it, then hand the point over ourselves.
    with no_stdout():
        solver.createAndConfigureSolver(model)
    solver.buildSolverModel(model)
    highs = model.solverModel
    variables = model.variables()
    if start is not None:
        point = highspy.HighsSolution()
        point.col_value = [float(start[v.name]) for v in variables]
        highs.setSolution(point)
    highs.run()
    info = highs.getInfo()
    status = highs.getModelStatus()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if status == highspy.HighsModelStatus.kInfeasible:
        return MilpResult(outcome=Outcome.INFEASIBLE, values={}, bound=float("inf"))
    values = highs.getSolution().col_value if found else []
    optimal = found and status == highspy.HighsModelStatus.kOptimal
    outcome = Outcome.OPTIMAL if optimal else Outcome.FEASIBLE if found else Outcome.UNKNOWN
    bound = info.objective_function_value if optimal else info.mip_dual_bound
    return MilpResult(
        outcome=outcome,
        values={v.name: values[v.index] for v in variables} if found else {},
        bound=float(bound),
    )


@contextmanager
def no_stdout() -> Iterator[None]:
    """Silence file descriptor 1: HiGHS greets from C++ before any option can forbid it."""
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        with open(os.devnull, "wb") as sink:
            os.dup2(sink.fileno(), 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _solve_cbc(
    model: Any, time_s: float, threads: int, start: Mapping[str, float] | None
) -> MilpResult:
    import pulp

    with warnings.catch_warnings():
        # PuLP 3 announces that CBC moves to a package of its own; HiGHS is what we prefer.
        warnings.simplefilter("ignore", DeprecationWarning)
        solver = pulp.PULP_CBC_CMD(
            msg=False, threads=threads, timeLimit=max(1.0, time_s), warmStart=start is not None
        )
    if not solver.available():
        raise SolverUnavailable("no MILP solver found; run `pip install highspy`")
    if start is not None:
        for variable in model.variables():
            variable.setInitialValue(start[variable.name])
    model.solve(solver)
    unknown = float("-inf")
    if model.sol_status == pulp.LpSolutionInfeasible:
        return MilpResult(outcome=Outcome.INFEASIBLE, values={}, bound=float("inf"))
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return MilpResult(outcome=Outcome.UNKNOWN, values={}, bound=unknown)
    values = {v.name: float(v.varValue or 0.0) for v in model.variables()}
    if model.sol_status == pulp.LpSolutionOptimal:
        objective = float(pulp.value(model.objective) or 0.0)
        return MilpResult(outcome=Outcome.OPTIMAL, values=values, bound=objective)
    return MilpResult(outcome=Outcome.FEASIBLE, values=values, bound=unknown)
