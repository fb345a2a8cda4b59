from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from memplan.errors import SolverUnavailable, UnknownSolver, UsageError
from memplan.planner import solver as solver_module
from memplan.planner.solver import GROUP, Solver, load_solver, solver_entry_points
from memplan.solvers.keep_all import KeepAll


@dataclass(frozen=True)
class Tunable(KeepAll):
    depth: int = 1
    width: int = 2


def offer(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    """Pretend that exactly these entry points are installed."""
    installed = EntryPoints(EntryPoint(name, value, GROUP) for name, value in points)
    monkeypatch.setattr(solver_module, "entry_points", lambda group: installed)


def test_keep_all_is_installed() -> None:
    solver = load_solver("keep-all")
    assert isinstance(solver, Solver)
    assert solver == KeepAll()


def test_an_unknown_name_lists_the_installed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("b", "m:B"), ("a", "m:A"))
    with pytest.raises(UnknownSolver, match="no solver 'c'; installed are a, b"):
        load_solver("c")


def test_two_packages_with_one_name_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("a", "one:A"), ("a", "two:A"))
    with pytest.raises(UnknownSolver, match="one:A and two:A"):
        load_solver("a")


def test_the_same_entry_twice_is_no_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("a", "one:A"), ("a", "one:A"))
    assert list(solver_entry_points()) == ["a"]


def test_options_are_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("tunable", f"{__name__}:Tunable"))
    assert load_solver("tunable", depth=3) == Tunable(depth=3)
    with pytest.raises(UsageError, match="no option 'dept'; it has depth, width"):
        load_solver("tunable", dept=3)


def test_a_solver_without_options_takes_none() -> None:
    with pytest.raises(UsageError, match="no option 'depth'; it has none"):
        load_solver("keep-all", depth=3)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("a", "no_such_package:A"))
    with pytest.raises(SolverUnavailable, match=r"'a' cannot be imported: .*no_such_package"):
        load_solver("a")
