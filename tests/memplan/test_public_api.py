"""What users can import and call; a change here is a change for every one of them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest

import memplan
from tests.conftest import Golden


def described(name: str) -> Iterator[str]:
    """One line a callable; for a class also its public attributes and methods."""
    thing = getattr(memplan, name)
    inherits_all = (
        inspect.isclass(thing) and "__init__" not in vars(thing) and not is_dataclass(thing)
    )
    yield name if inherits_all else f"{name}{inspect.signature(thing)}"
    if not inspect.isclass(thing):
        return
    known = {field.name for field in fields(thing)} if is_dataclass(thing) else set()
    for base in thing.__mro__:
        if not base.__module__.startswith("memplan"):
            continue
        for attribute, value in sorted(vars(base).items()):
            if attribute.startswith("_") or attribute in known:
                continue
            known.add(attribute)
            function = getattr(value, "__func__", value)
            shown = inspect.signature(function) if inspect.isfunction(function) else ""
            yield f"    .{attribute}{shown}"


def test_public_api(golden: Golden) -> None:
    pytest.importorskip("torch")
    lines = [line for name in memplan.__all__ for line in described(name)]
    golden("\n".join(lines) + "\n")


def test_every_public_name_is_documented_and_listed() -> None:
    pytest.importorskip("torch")
    assert list(memplan.__all__) == sorted(memplan.__all__)
    assert dir(memplan) == sorted(memplan.__all__)
    assert not [name for name in memplan.__all__ if not inspect.getdoc(getattr(memplan, name))]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        memplan.no_such_name  # noqa: B018


def loaded_by(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after `code`."""
    probe = f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


HEAVY = {"torch", "numpy", "networkx", "pulp", "ortools", "highspy", "transformers"}


def test_importing_memplan_loads_nothing_heavy() -> None:
    assert loaded_by("import memplan").isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "module",
    ["graph_capture.graph", "graph_capture.device", "planner.pipeline", "planner.plan"],
)
def test_planning_loads_no_torch(module: str) -> None:
    assert "torch" not in loaded_by(f"import memplan.{module}")


def test_listing_the_solvers_imports_none_of_them() -> None:
    code = "from memplan.planner.solver import solver_entry_points as f; assert f()"
    assert loaded_by(code).isdisjoint(HEAVY)
