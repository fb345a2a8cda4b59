"""The pages on solvers and systems name the solvers of this package, and no others."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_solver_has_a_section() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    solvers = sorted(project["entry-points"]["memplan.solvers"])
    text = (ROOT / "docs" / "solvers.md").read_text()
    sections = re.split(r"^### (.+)$", text.partition("\n## Notebooks")[0], flags=re.MULTILINE)
    assert sections[1::2] == solvers
    for name, body in zip(sections[1::2], sections[2::2], strict=True):
        assert len(body.split()) >= 8, f"the section of {name} says nothing"


def test_systems_name_solvers_that_name_their_row() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    solvers = project["entry-points"]["memplan.solvers"]
    rows = re.findall(
        r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", (ROOT / "docs/systems.md").read_text(), re.M
    )
    assert [int(row) for row, _ in rows] == list(range(1, len(rows) + 1))
    held = {name: int(row) for row, text in rows for name in re.findall(r"`([a-z-]+)`", text)}
    assert held.keys() <= solvers.keys()
    for name in held:
        module = solvers[name].partition(":")[0].removeprefix("memplan.")
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        found = re.search(r"rows? ([\d and]+) of docs/systems", source)
        if found:
            assert str(held[name]) in found.group(1).split(), name
