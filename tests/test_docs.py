"""docs/solvers.md has one section for each solver of this package, and none for others."""

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
