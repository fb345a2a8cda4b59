"""What the README says can be done, and its tables are those of the last runs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import fill_readme
from benchmarks.verify_examples import examples
from memplan.cli import app
from memplan.codegen.optimized_module import OptimizedModule

README = fill_readme.README.read_text(encoding="utf-8")


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_the_python_example_runs() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code
    model = nn.Sequential(*[nn.Linear(32, 32), nn.Tanh()] * 4)
    before = [p.detach().clone() for p in model.parameters()]
    batch = torch.randn(64, 32), torch.randn(64, 32)
    names: dict[str, Any] = {"model": model, "loss": nn.MSELoss(), "batches": [batch] * 2}
    names |= {"inputs": batch[0], "targets": batch[1]}
    names["optimizer"] = torch.optim.AdamW(model.parameters())
    exec(code[1], names)
    assert isinstance(names["model"], OptimizedModule)
    assert not any(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_every_command_and_file_that_is_named_is_there() -> None:
    commands = set(re.findall(r"^    memplan (\w+)", README, re.MULTILINE))
    assert {"compile", "show", "check", "solvers"} <= commands
    assert commands <= set(app.commands)
    modules = set(re.findall(r"python -m (benchmarks\.\w+)", README))
    assert "benchmarks.verify_examples" in modules
    for module in modules:
        assert importlib.util.find_spec(module)
    for path in re.findall(r"\]\((?!http)([^)]+)\)|(examples/\w+\.py)", README):
        assert (fill_readme.ROOT / "".join(path)).exists()
    assert "has eight" in README
    assert len(examples()) == 8


def test_the_tables_are_those_of_the_committed_results() -> None:
    assert fill_readme.filled(README, fill_readme.RESULTS) == README


def test_tables_are_filled_from_results(tmp_path: Path) -> None:
    example = {"example": "net", "asked": "50%", "budget_bytes": 5 * 10**9, "off": 0.0012}
    example |= {"unplanned_peak_bytes": 10**10, "planned_peak_bytes": 49 * 10**8}
    example |= {"measured_peak_bytes": 4906 * 10**6, "overhead": 0.25, "identical": True}
    rows = [example, {"example": "other", "error": "exit code 1"}]
    (tmp_path / "verify_examples.json").write_text(json.dumps(rows))
    moved = example | {"swap": "disk", "moved_bytes": 2 * 10**9}
    failed = {"example": "other", "swap": "host", "error": "exit code 1"}
    (tmp_path / "verify_swaps.json").write_text(json.dumps([moved, failed]))
    ways = [
        {"way": "plain", "peak_bytes": 10**10, "step_s": 2.0, "gradient_error": 0.0},
        {"way": "memplan=50%", "peak_bytes": 5 * 10**9, "step_s": 2.5, "gradient_error": 0.0},
    ]
    (tmp_path / "alternatives.json").write_text(json.dumps(ways))
    ways = [
        {"way": "plain", "peak_bytes": 4 * 10**8, "step_s": 0.8, "ratio": 1.0},
        {"way": "memplan=100%", "peak_bytes": 39 * 10**7, "step_s": 0.8, "ratio": 1.004},
        {"way": "checkpoint", "peak_bytes": 2 * 10**8, "step_s": 1.0, "ratio": 1.25},
        {"way": "memplan=checkpoint", "error": "below the least, 0.21 GB"},
    ]
    (tmp_path / "steps.json").write_text(json.dumps([{"example": "net"} | way for way in ways]))
    step = {"table": "steps", "graph": "deep", "ops": 90, "first_seconds": 0.42, "seconds": 1.6}
    step |= {"known": None}
    monet = {"table": "published", "graph": "monet_net", "known": 0.02, "seconds": 3.0}
    plans = [
        monet | {"asked": "9", "status": "optimal", "extra": 0.01},
        monet | {"asked": "8", "status": "feasible", "extra": 1.02**2 / 1.01 - 1},
        step | {"asked": "50", "extra": 0.0812, "gap": 0.004},
        step | {"asked": "30", "status": "infeasible"},
        step | {"asked": "25", "status": "unknown"},
        step
        | {"asked": "block", "extra": 0.11, "gap": 0.002}
        | {"checkpoint_extra": 0.3, "checkpoint_peak": 0.4},
    ]
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    text = fill_readme.filled(README, tmp_path)
    planned = "+11.0% | +8.1% | cannot fit | none found | 0.4% | 0.4 s | 2 s |"
    assert f"| deep | 90 | +30.0% at 40% | {planned}" in text.splitlines()
    known = "| CNNs: Gurobi, up to 24 h | 2 | 1 | 1 | +2.00% | +2.00% | 3 s |"
    assert known in text.splitlines()
    line = "| net | 5.00 GB (50%) | 10.00 GB | 4.90 GB | 4.91 GB (+0.12%) | +25.0% | yes |"
    assert line in text.splitlines()
    line = "| net | disk | 5.00 GB (50%) | 2.00 GB | 4.90 GB | 4.91 GB (+0.12%) | yes |"
    assert line in text.splitlines()
    assert "| other | host | exit code 1 |  |  |  |  |" in text.splitlines()
    assert "| memplan=50% | 5.00 GB | 50% | 2.5 s | x 1.25 | 0 |" in text.splitlines()
    at_full = "400.0 MB, 0.80 s | 390.0 MB, x 1.00 | 200.0 MB, x 1.25"
    assert f"| net | {at_full} | below the least, 0.21 GB |" in text.splitlines()
    assert "| other | exit code 1 |  |  |  |  |  |" in text.splitlines()
    assert fill_readme.filled(text, tmp_path) == text
    with pytest.raises(ValueError, match="no place"):
        fill_readme.filled("", tmp_path)
