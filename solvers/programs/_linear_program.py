"""Builds a linear program row by row and runs it in HiGHS, without a modelling layer between.

The bound of a linear program is not HiGHS's word: it is computed here from the dual values, which
may be any numbers (weak duality), so that tolerances and an early stop cannot make it wrong.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import numpy.typing

from memplan.errors import SolverUnavailable
from memplan.solvers.programs._milp import Outcome, no_stdout

INFINITY = math.inf
Terms = Iterable[tuple[int, float]]
"""(column, coefficient) pairs; a column may appear more than once."""
_Vector = numpy.typing.NDArray[numpy.float64]
_LEAST_SLACK = 1e-6
_LEAST_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """The end of one run.

    Attributes:
        values: One for each column; empty where there is no feasible point.
        bound: No feasible point has a smaller objective.
    """

    outcome: Outcome
    values: tuple[float, ...]
    bound: float


class LinearProgram:
    """Minimise costs over columns within bounds, under rows within bounds."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.integer: list[bool] = []
        self.row_lower: list[float] = []
        self.row_upper: list[float] = []
        self._starts = [0]
        self._columns: list[int] = []
        self._coefficients: list[float] = []

    def column(
        self, cost: float = 0.0, lower: float = 0.0, upper: float = 1.0, integer: bool = False
    ) -> int:
        """Add a variable; return its number."""
        self.costs.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.costs) - 1

    def row(self, lower: float, terms: Terms, upper: float) -> None:
        """Add `lower <= sum of coefficient x column <= upper`."""
        merged: dict[int, float] = {}
        for column, coefficient in terms:
            merged[column] = merged.get(column, 0.0) + coefficient
        self._columns += merged.keys()
        self._coefficients += merged.values()
        self._starts.append(len(self._columns))
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def at_most(self, terms: Terms, upper: float) -> None:
        """Add `sum <= upper`."""
        self.row(-INFINITY, terms, upper)

    def relax(self, time_s: float, seed: int = 0) -> ProgramResult:
        """Solve without integrality.

        Returns:
            OPTIMAL, INFEASIBLE by HiGHS's word, or UNKNOWN; the bound always holds.

        Raises:
            KeyboardInterrupt: The user stopped it.
            SolverUnavailable: HiGHS is not installed.
        """
        if not self.costs:
            return self._without_columns()
        highs, highspy = self._highs(time_s, seed, threads=1)
        self._pass_model(highs, highspy, integer=False)
        status = _run(highs, highspy)
        solution = highs.getSolution()
        duals = numpy.array(solution.row_dual) if solution.dual_valid else None
        bound = self.dual_bound(duals if duals is not None else numpy.zeros(len(self.row_lower)))
        if status == highspy.HighsModelStatus.kInfeasible:
            return ProgramResult(outcome=Outcome.INFEASIBLE, values=(), bound=INFINITY)
        if status == highspy.HighsModelStatus.kOptimal:
            values = tuple(solution.col_value)
            return ProgramResult(outcome=Outcome.OPTIMAL, values=values, bound=bound)
        return ProgramResult(outcome=Outcome.UNKNOWN, values=(), bound=bound)

    def solve(
        self,
        time_s: float,
        threads: int = 1,
        seed: int = 0,
        gap: float = 0.0,
        start: Mapping[int, float] | None = None,
        slack: float = 0.0,
    ) -> ProgramResult:
        """Solve with integrality.

        Args:
            time_s: Stop after this time.
            threads: Of HiGHS.
            seed: Of its random choices.
            gap: Stop at this difference to the bound, as a share of the objective.
            start: Values of some columns to start from; HiGHS completes them if it can.
            slack: Stop at this difference.

        Returns:
            OPTIMAL only without `gap` and `slack`.

        Raises:
            KeyboardInterrupt: The user stopped it.
            SolverUnavailable: HiGHS is not installed.
        """
        if not self.costs:
            return self._without_columns()
        highs, highspy = self._highs(time_s, seed, threads)
        highs.setOptionValue("mip_rel_gap", gap)
        highs.setOptionValue("mip_abs_gap", max(_LEAST_SLACK, slack))
        self._pass_model(highs, highspy, integer=True)
        if start:
            columns = numpy.array(list(start.keys()), dtype=numpy.int32)
            highs.setSolution(len(columns), columns, numpy.array(list(start.values())))
        status = _run(highs, highspy)
        info = highs.getInfo()
        if status == highspy.HighsModelStatus.kInfeasible:
            return ProgramResult(outcome=Outcome.INFEASIBLE, values=(), bound=INFINITY)
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        ended = found and status == highspy.HighsModelStatus.kOptimal
        optimal = ended and not gap and not slack
        outcome = Outcome.OPTIMAL if optimal else Outcome.FEASIBLE if found else Outcome.UNKNOWN
        values = tuple(highs.getSolution().col_value) if found else ()
        return ProgramResult(outcome=outcome, values=values, bound=float(info.mip_dual_bound))

    def dual_bound(self, duals: _Vector) -> float:
        """Return what `duals`, one number a row, prove by weak duality; never too much.

        Any duals y give `y b + sum over columns of the least (c - y A) x`, with b the side of
        each row that the sign of y asks for. What rounding can add to these sums is taken off.
        """
        lower, upper = numpy.array(self.row_lower), numpy.array(self.row_upper)
        duals = numpy.where((duals > 0) & ~numpy.isfinite(lower), 0.0, duals)
        duals = numpy.where((duals < 0) & ~numpy.isfinite(upper), 0.0, duals)
        rows = numpy.repeat(numpy.arange(len(duals)), numpy.diff(self._starts))
        products = duals[rows] * numpy.array(self._coefficients)
        columns = numpy.array(self._columns, dtype=numpy.int64)
        costs = numpy.array(self.costs)
        reduced = costs - numpy.bincount(columns, products, len(costs))
        at = numpy.where(reduced > 0, numpy.array(self.lower), numpy.array(self.upper))
        of_columns = numpy.where(reduced == 0.0, 0.0, reduced) * numpy.where(reduced == 0, 0, at)
        side = numpy.where(duals > 0, lower, numpy.where(duals < 0, upper, 0.0))
        of_rows = duals * side
        total = math.fsum(of_rows) + math.fsum(of_columns)
        reach = numpy.maximum(numpy.abs(self.lower), numpy.abs(self.upper))
        size = numpy.abs(costs) + numpy.bincount(columns, numpy.abs(products), len(costs))
        rounding = float(numpy.dot(size, reach)) + float(numpy.abs(of_rows).sum())
        return float(total - 64 * numpy.finfo(float).eps * rounding)

    def _highs(self, time_s: float, seed: int, threads: int) -> tuple[Any, Any]:
        try:
            import highspy
        except ImportError as error:
            raise SolverUnavailable("HiGHS is missing; run `pip install highspy`") from error
        with no_stdout():
            highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
            highs.setOptionValue("output_flag", False)
        # It looks at the clock now and then only, so that it is asked to end a little earlier.
        highs.setOptionValue("time_limit", max(_LEAST_S, time_s - min(1.0, 0.1 + 0.1 * time_s)))
        highs.setOptionValue("threads", threads)
        highs.setOptionValue("parallel", "on" if threads > 1 else "off")
        highs.setOptionValue("random_seed", seed)
        return highs, highspy

    def _pass_model(self, highs: Any, highspy: Any, *, integer: bool) -> None:
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self.costs), len(self.row_lower)
        program.col_cost_ = numpy.array(self.costs)
        program.col_lower_ = _bounds(self.lower, highspy)
        program.col_upper_ = _bounds(self.upper, highspy)
        program.row_lower_ = _bounds(self.row_lower, highspy)
        program.row_upper_ = _bounds(self.row_upper, highspy)
        matrix = program.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = numpy.array(self._starts, dtype=numpy.int32)
        matrix.index_ = numpy.array(self._columns, dtype=numpy.int32)
        matrix.value_ = numpy.array(self._coefficients)
        if integer:
            kinds = highspy.HighsVarType
            program.integrality_ = [
                kinds.kInteger if whole else kinds.kContinuous for whole in self.integer
            ]
        highs.passModel(program)

    def _without_columns(self) -> ProgramResult:
        """Answer for a program with nothing to decide: its rows hold or not."""
        holds = all(
            lower <= 1e-9 and upper >= -1e-9
            for lower, upper in zip(self.row_lower, self.row_upper, strict=True)
        )
        outcome = Outcome.OPTIMAL if holds else Outcome.INFEASIBLE
        return ProgramResult(outcome=outcome, values=(), bound=0.0 if holds else INFINITY)


def _bounds(values: Sequence[float], highspy: Any) -> _Vector:
    most = highspy.kHighsInf
    bounds: _Vector = numpy.clip(numpy.array(values, dtype=float), -most, most)
    return bounds


def _run(highs: Any, highspy: Any) -> Any:
    """Run HiGHS such that Ctrl-C ends it; return the status of the model."""
    highs.HandleKeyboardInterrupt = True
    with _ending_on_interrupt(highs):
        highs.solve()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInterrupt:
        raise KeyboardInterrupt
    return status


@contextmanager
def _ending_on_interrupt(highs: Any) -> Iterator[None]:
    """Cancel the solver on Ctrl-C, and raise KeyboardInterrupt only when it has ended.

    An exception in the middle of highspy would leave its thread behind, which then aborts the
    process at its end. Only the main thread may do this; in others Ctrl-C does not arrive.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        highs.cancelSolve()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    if stopped:
        raise KeyboardInterrupt
