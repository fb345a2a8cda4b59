"""What people's models do that breaks recomputation elsewhere: the cases that this project shares.

They live beside the checkout and bring their own runner: each case compares three training steps
with plain PyTorch bit by bit, and some accept a refusal that names the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT.parent / "shared" / "cases"
NAMES = [path.stem for path in sorted((FOLDER / "cases").glob("[0-9][0-9]_*.py"))]


@pytest.mark.skipif(not NAMES, reason=f"no cases in {FOLDER}")
def test_the_runner_is_there() -> None:
    assert (FOLDER / "check_opt.py").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_planned_step_is_right_or_refused_by_name(name: str) -> None:
    path = os.pathsep.join((str(ROOT), str(HERE)))
    run = subprocess.run(
        [sys.executable, "check_opt.py", "--with", "adapter:at_least_memory", name],
        cwd=FOLDER,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.split()[:2] in (["ok", name], ["refused", name])
