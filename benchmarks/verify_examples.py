"""Run every example by its plan and compare it with the unplanned step.

    python -m benchmarks.verify_examples [NAME ...] [--budgets 70%,50%,35%] [--json FILE]
    python -m benchmarks.verify_examples [NAME ...] --swap disk,host [--link 4GB/s]
        [--profile analytic] [--timed-steps 0]

For each budget, or the smallest feasible one where that is higher: three optimizer steps both
ways, bit by bit, and the measured peak beside the planned one. With `--swap`, once for each place
that tensors may be moved to; there a budget below the smallest that recomputing can meet is met.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = (
    *("example", "swap", "budget", "unplanned", "planned", "measured", "off"),
    *("moved", "extra", "step", "identical"),
)


def main() -> int:
    """Print the table; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="examples; all if none is named")
    parser.add_argument("--budgets", default="70%,50%,35%")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--swap", default="none", help="places to move to, as disk,host")
    parser.add_argument("--link", help="speed of the link that --swap host keeps to")
    parser.add_argument("--profile", choices=("measured", "analytic"), default="measured")
    parser.add_argument("--timed-steps", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(verify_one(options.one, options.budgets.split(","), options)))
        return 0
    names = options.names or examples()
    rows: list[dict[str, Any]] = []
    for name in names:
        found = _in_own_process(name, options)
        _print(found)
        rows += found
    Console(width=140).print(_table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row.get("holds") for row in rows) else 1


def examples() -> list[str]:
    """Return the examples that run here: those that name no other device to be planned for."""
    files = (ROOT / "examples").glob("*.py")
    return sorted(path.stem for path in files if "--device" not in path.read_text())


def verify_one(name: str, budgets: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row for each place and distinct budget of one example."""
    import torch

    from memplan.codegen.check import check_each
    from memplan.model_file import read_model_file

    torch.manual_seed(0)
    file = read_model_file(ROOT / "examples" / f"{name}.py")
    started = time.perf_counter()
    modules: dict[tuple[str, int], tuple[str, Any]] = {}
    for place in options.swap.split(","):
        for budget in budgets:
            module, asked = _compile(file, budget, place, options)
            modules.setdefault((place, module.plan.budget_bytes), (asked, module))
    compiled_s = time.perf_counter() - started
    checks = check_each(
        [module for _, module in modules.values()],
        file.args,
        file.kwargs,
        optimizer=file.optimizer,
        steps=3,
        timed_steps=options.timed_steps,
    )
    rows = []
    for ((place, _), (asked, module)), check in zip(modules.items(), checks, strict=True):
        plan = module.plan
        off = check.measured_peak_bytes / check.planned_peak_bytes - 1
        holds = check.identical and abs(off) <= 0.01
        rows.append(
            {
                "example": name,
                "swap": place,
                "asked": asked,
                "budget_bytes": plan.budget_bytes,
                "unplanned_peak_bytes": plan.unplanned_peak_bytes,
                "unplanned_measured_bytes": check.unplanned_measured_peak_bytes,
                "planned_peak_bytes": plan.planned_peak_bytes,
                "measured_peak_bytes": check.measured_peak_bytes,
                "off": off,
                "moved_bytes": plan.timeline.swapped_bytes,
                "overhead": plan.overhead,
                "gap": plan.gap,
                "step_time_ratio": check.step_time_ratio,
                "identical": check.identical,
                "solve_seconds": plan.solve_seconds,
                "compile_seconds": compiled_s,
                "holds": holds and check.measured_peak_bytes <= plan.budget_bytes,
            }
        )
    return rows


def _compile(file: Any, budget: str, place: str, options: argparse.Namespace) -> tuple[Any, str]:
    """Return the module and the budget it was made for, in words: what was asked, or `min`."""
    import memplan
    from memplan.errors import SolverStopped

    def at(bytes_or_text: int | str) -> Any:
        return memplan.compile(
            file.model,
            file.args,
            file.kwargs,
            budget=bytes_or_text,
            loss=file.loss,
            optimizer=file.optimizer,
            solver=options.solver,
            time_limit=options.time_limit,
            profile=options.profile,
            swap=place,
            link=options.link,
        )

    try:
        return at(budget), budget
    except (memplan.InfeasibleBudget, SolverStopped) as error:
        if error.feasible_bytes is None:
            raise
        return at("min"), "min"


def _in_own_process(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Verify one example where its memory goes back to the system afterwards."""
    command = [sys.executable, "-m", "benchmarks.verify_examples", "--one", name]
    command += ["--budgets", options.budgets, "--solver", options.solver]
    command += ["--time-limit", str(options.time_limit), "--swap", options.swap]
    command += ["--profile", options.profile, "--timed-steps", str(options.timed_steps)]
    if options.link:
        command += ["--link", options.link]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        error = f"exit code {done.returncode}"
        return [{"example": name, "swap": options.swap, "error": error}]
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(json.dumps(row), file=sys.stderr, flush=True)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "example" else "right")
    for row in rows:
        if "error" in row:
            table.add_row(row["example"], row["swap"], row["error"])
            continue
        table.add_row(
            row["example"],
            row["swap"],
            f"{row['asked']} {row['budget_bytes'] / 1e6:,.1f}",
            f"{row['unplanned_peak_bytes'] / 1e6:,.1f} MB",
            f"{row['planned_peak_bytes'] / 1e6:,.1f} MB",
            f"{row['measured_peak_bytes'] / 1e6:,.1f} MB",
            f"{row['off']:+.3%}",
            f"{row['moved_bytes'] / 1e6:,.0f} MB",
            f"{row['overhead']:+.2%}",
            f"x {row['step_time_ratio']:.2f}",
            "yes" if row["identical"] else "NO",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
