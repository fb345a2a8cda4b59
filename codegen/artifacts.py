"""The folder that `memplan compile` writes: the plan and the code that it stands for."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from torch import fx

from memplan.codegen.backend import PlannedStep
from memplan.codegen.report import REPORT_FILE, report
from memplan.errors import UsageError

PLAN_FILE = "plan.json"
CODE_FILES = ("forward.py", "backward.py")


def save_step(step: PlannedStep, folder: str | Path) -> Path:
    """Write `plan.json`, `forward.py`, `backward.py` and `report.html` to a folder; return it.

    The folder is complete or not there: it is written beside its place and moved. Files of an
    older plan are replaced, other files stay.

    Raises:
        UsageError: The folder cannot be written to.
    """
    target = Path(folder)
    is_new = not target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".memplan-", dir=target) as beside:
            draft = Path(beside)
            graphs = (step.graphs.forward, step.graphs.backward)
            code = dict(zip(CODE_FILES, map(_readable, graphs), strict=True))
            texts = {**code, REPORT_FILE: report(step.plan, code)}
            for name, text in texts.items():
                (draft / name).write_text(text, encoding="utf-8")
            step.plan.save(draft / PLAN_FILE)
            for name in (*texts, PLAN_FILE):
                shutil.move(draft / name, target / name)
    except OSError as error:
        if is_new:
            shutil.rmtree(target, ignore_errors=True)
        raise UsageError(f"cannot write to the folder {target}: {error.strerror}") from None
    return target


def _readable(module: fx.GraphModule) -> str:
    code: str = module.print_readable(print_output=False, include_stride=False)
    return code if code.endswith("\n") else code + "\n"
