"""Train under a hard memory limit that the unplanned step does not survive.

    python -m benchmarks.hard_limit [--layers 24] [--budget 30%] [--swap-dir FOLDER]

Three fresh processes run one deep net. The first makes a plan that moves tensors to the disk, and
saves it. Then the kernel is told (RLIMIT_DATA) to give a process no more than what it holds before
the model, the planned peak, and some slack for the interpreter and the compiler: the second takes
three steps without a plan, the third by the plan. Printed are the limit, how both end, what
would have been saved beside the memory there is, and how far the resident memory of the planned
process rose. malloc is told to give memory back at once, or it would keep what is freed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
WIDTH, ROWS, STEPS = 256, 32768, 3
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Large blocks come from the kernel and go back to it when they are freed."""


def main() -> int:
    """Print what becomes of both; 1 unless one dies and the other trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--budget", default="30%")
    parser.add_argument("--slack", default="400MB", help="for all that is no tensor")
    parser.add_argument("--swap-dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--role", choices=("plan", "plain", "planned"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "plan":
        make_plan(options)
        return 0
    if options.role:
        train(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return _compare(options, Path(folder))


def net(layers: int) -> nn.Module:
    """Return layers that are cheap to run and keep much: two tensors (ROWS, WIDTH) each."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(layers))
    )


def loss(output: torch.Tensor) -> torch.Tensor:
    """Return the mean square."""
    return output.square().mean()


def make_plan(options: argparse.Namespace) -> None:
    """Plan and save; print the figures of the plan as JSON."""
    import memplan

    module = memplan.compile(
        *(net(options.layers), torch.randn(ROWS, WIDTH)),
        budget=options.budget,
        loss=loss,
        swap="disk",
        swap_dir=options.swap_dir,
        profile="analytic",
        time_limit=10,
    )
    module.save(options.folder / "plan")
    plan = module.plan
    figures = {
        "planned_bytes": plan.planned_peak_bytes,
        "unplanned_bytes": plan.unplanned_peak_bytes,
        "moved_bytes": plan.timeline.swapped_bytes,
    }
    print(json.dumps(figures))


def train(options: argparse.Namespace) -> None:
    """Take the steps under the limit; print the losses and the rise of memory as JSON."""
    import memplan

    before_bytes = _status_bytes("VmData")
    limit_bytes = before_bytes + options.limit
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    model, x = net(options.layers), torch.randn(ROWS, WIDTH)
    step: Any = lambda x: loss(model(x))  # noqa: E731
    if options.role == "planned":
        step = memplan.load(options.folder / "plan", model, loss=loss, swap_dir=options.swap_dir)
        step.plan_for(x)
    rest_bytes = _status_bytes("VmRSS")
    # What the process needed once, to import and to trace, is no part of a step.
    Path("/proc/self/clear_refs").write_text("5")
    held_bytes = sum(t.nbytes for t in (*model.parameters(), x))
    losses = []
    for _ in range(STEPS):
        model.zero_grad(set_to_none=True)
        value = step(x)
        value.backward()
        losses.append(float(value.detach()))
    rise_bytes = _status_bytes("VmHWM") - rest_bytes
    print(json.dumps({"losses": losses, "peak_bytes": held_bytes + rise_bytes}))


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def _compare(options: argparse.Namespace, folder: Path) -> int:
    from memplan.units import format_bytes, parse_bytes

    planning = _run("plan", options, folder, 0)
    if planning.returncode:
        said = (planning.stderr.strip().splitlines() or ["nothing"])[-1]
        print(f"no plan, exit code {planning.returncode}: {said}")
        return 1
    plan = json.loads(planning.stdout.splitlines()[-1])
    limit_bytes = plan["planned_bytes"] + parse_bytes(options.slack)
    over = format_bytes(plan["unplanned_bytes"]), format_bytes(plan["planned_bytes"])
    print(f"the step takes {over[0]} without a plan, {over[1]} by the plan")
    print(f"limit: {format_bytes(limit_bytes)} above what the process holds before the model")
    results = {}
    for role in ("plain", "planned"):
        done = _run(role, options, folder, limit_bytes)
        said = (done.stderr.strip().splitlines() or ["killed"])[-1]
        results[role] = None if done.returncode else json.loads(done.stdout.splitlines()[-1])
        how = f"exit code {done.returncode}: {said[:90]}" if done.returncode else "trains"
        print(f"{role}: {how}")
    planned = results["planned"]
    if planned is not None:
        print(f"losses of the planned steps: {planned['losses']}")
        moved = format_bytes(plan["moved_bytes"])
        rose = format_bytes(planned["peak_bytes"])
        print(f"moved to the disk in a step: {moved}; resident peak {rose}, planned {over[1]}")
    left = sorted(p.name for p in options.swap_dir.glob(".memplan-swap-*"))
    print(f"left in {options.swap_dir}: {left or 'nothing'}")
    return 0 if results["plain"] is None and planned is not None and not left else 1


def _run(
    role: str, options: argparse.Namespace, folder: Path, limit_bytes: int
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.hard_limit", "--role", role]
    command += ["--folder", str(folder), "--limit", str(limit_bytes)]
    command += ["--layers", str(options.layers), "--budget", options.budget]
    command += ["--swap-dir", str(options.swap_dir)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **MALLOC},
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
