"""The interface of a solver, and how one is found by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from memplan.errors import SolverUnavailable, UnknownSolver, UsageError
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule
from memplan.planner.solver_options import option_value, solver_spec

GROUP = "memplan.solvers"


class Status(Enum):
    """How far a solver got."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A solver's answer. Its numbers are claims until the judges have confirmed them.

    Attributes:
        status: OPTIMAL and INFEASIBLE are proofs over all schedules of the captured order;
            UNKNOWN means that time ran out or that the method does not apply.
        schedule: None unless the status is OPTIMAL or FEASIBLE.
        proven_bound_ns: No schedule of the captured order within the budget is faster.
        model_bound_ns: The bound in the solver's own model, where it has one.
        minimum_bytes: With INFEASIBLE: a proven lower limit of any schedule's peak.
        reason: One line for people: why UNKNOWN, or what was proven.
        stats: Counters of the solver, for reports.
    """

    status: Status
    schedule: Schedule | None = None
    proven_bound_ns: int = 0
    model_bound_ns: int | None = None
    minimum_bytes: int | None = None
    reason: str = ""
    stats: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __repr__(self) -> str:
        steps = "no schedule" if self.schedule is None else f"{len(self.schedule):,} steps"
        return (
            f"<Solution: {self.status.value}, {steps}, bound {self.proven_bound_ns:,} ns"
            f"{f', {self.reason}' if self.reason else ''}>"
        )


@runtime_checkable
class Solver(Protocol):
    """A frozen dataclass whose fields are its options, with one method.

    `solve` neither changes its arguments nor prints. A budget that cannot be met is an
    answer (`Status.INFEASIBLE`), not an exception.

    Two more class attributes are looked for, to list solvers with: `needs`, the packages without
    which it does not work, and `may`, what it can decide (`keep` and `recompute`).
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    """`exact`, `heuristic` or `baseline`."""
    source: ClassVar[str]
    """Where the method was published, in one line. A solver that moves tensors has a fourth,
    `may`: what it does with them, of `keep`, `recompute` and `swap`."""

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best schedule found within `limits`."""
        ...


def solver_entry_points() -> dict[str, EntryPoint]:
    """Installed solvers by name, built in or not; none is imported yet.

    Raises:
        UnknownSolver: Two packages offer different solvers under one name.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        if point.name in found and point.value != found[point.name].value:
            raise UnknownSolver(
                f"two packages offer a solver {point.name!r}: "
                f"{found[point.name].value} and {point.value}; uninstall one of them"
            )
        found[point.name] = point
    return found


def load_solver(name: str, **options: Any) -> Solver:
    """Import a solver and set its options.

    Args:
        name: Its name, or one with options as `solver_spec` reads it: `rotor:slots=200`.
        **options: Options by name; they come before those in `name`.

    Raises:
        UnknownSolver: No installed package offers that name.
        SolverUnavailable: Its package cannot be imported.
        UsageError: It has no such option, or not with that value.
    """
    name, texts = solver_spec(name)
    points = solver_entry_points()
    if name not in points:
        raise UnknownSolver(f"no solver {name!r}; installed are {', '.join(points)}")
    try:
        offered = points[name].load()
    except ImportError as error:
        raise SolverUnavailable(f"solver {name!r} cannot be imported: {error}") from error
    known = {option.name: option for option in fields(offered)}
    if wrong := [option for option in (*texts, *options) if option not in known]:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise UsageError(f"solver {name!r} has no option {wrong[0]!r}; {has}")
    read = {option: option_value(name, known[option], text) for option, text in texts.items()}
    return cast(Solver, offered(**(read | options)))
