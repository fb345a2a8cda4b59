"""The wheel has every module, although four of its packages are links in the checkout."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent.parent
LINKED = ("codegen", "graph_capture", "planner", "solvers")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from that sdist."""
    for name in ("build", "hatchling"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; run `make install`")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def modules_in_checkout() -> set[str]:
    """Module files under the names that a user imports them by."""
    own = {str(path.relative_to(ROOT)) for path in (ROOT / "memplan").glob("*.py")}
    own |= {str(path.relative_to(ROOT)) for path in (ROOT / "memplan" / "commands").glob("*.py")}
    for package in LINKED:
        for path in (ROOT / package).rglob("*.py"):
            own.add(f"memplan/{path.relative_to(ROOT)}")
    return own


@pytest.mark.slow
def test_a_wheel_from_the_sdist_has_every_module(dist: Path) -> None:
    wheel = ZipFile(next(dist.glob("*.whl")))
    names = set(wheel.namelist())
    assert {name for name in names if name.endswith(".py")} == modules_in_checkout()
    assert {"memplan/py.typed", "memplan/codegen/report.html.jinja"} <= names


@pytest.mark.slow
def test_the_wheel_offers_the_command_and_the_solvers(dist: Path) -> None:
    wheel = ZipFile(next(dist.glob("*.whl")))
    entry_points = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    text = wheel.read(entry_points).decode()
    assert "memplan = memplan.cli:main" in text
    assert "keep-all = memplan.solvers.keep_all:KeepAll" in text


@pytest.mark.slow
def test_the_wheel_imports_without_the_checkout(dist: Path) -> None:
    wheel = str(next(dist.glob("*.whl")))
    code = (
        f"import sys; sys.path.insert(0, {wheel!r}); import memplan.planner.verify as m; "
        "print(m.__file__)"
    )
    command = [sys.executable, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.startswith(wheel)


@pytest.mark.slow
def test_the_sdist_has_the_tests_and_nothing_built(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = archive.getnames()
    assert any(name.endswith("tests/planner/test_verify.py") for name in names)
    assert any(name.endswith("examples/gpt2.py") for name in names)
    assert not [name for name in names if "__pycache__" in name or "/.venv/" in name]
