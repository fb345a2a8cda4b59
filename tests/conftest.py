"""Golden files: text that is compared with what stands in `tests/golden`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
import torch

Golden: TypeAlias = Callable[[str], None]

FOLDER = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


@pytest.fixture(autouse=True)
def _no_devices_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what the user has calibrated away from the tests, and the tests from it."""
    monkeypatch.setenv("MEMPLAN_DEVICES", str(tmp_path / "users-devices.toml"))


@pytest.fixture(autouse=True)
def _no_plans_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve what a test asks for, however often other tests asked for it."""
    monkeypatch.setenv("MEMPLAN_PLAN_CACHE", "off")


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Trace as if nothing had been traced before, and leave nothing that was."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare text with `tests/golden/<name of the test>.txt`; `--update-golden` rewrites it."""
    path = FOLDER / f"{request.node.name}.txt"

    def compare(actual: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(actual, encoding="utf-8")
        if not path.exists():
            pytest.fail(f"no golden file {path.name}; run pytest --update-golden and read it")
        expected = path.read_text(encoding="utf-8")
        assert actual == expected, f"differs from {path.name}; if meant so, --update-golden"

    return compare
