"""What a planned step costs: at the full budget, and at the peak of one checkpoint a block.

    OMP_NUM_THREADS=1 python -m benchmarks.steps [gpt2] [resnet50] [--clock cpu] [--json FILE]
    OMP_NUM_THREADS=1 python -m benchmarks.steps --lowering inductor [...]

Each example runs four ways, in processes that take timed steps in turn: plain PyTorch; a plan
that keeps everything, whose extra time is that of memplan being there; `torch.utils.checkpoint`
on each block; and a plan whose budget is the peak measured of the checkpointed step.

With `--lowering inductor`, larger batches: `torch.compile` as it is, with its memory budget at
several values, and plans lowered through Inductor for the peak of the first and half of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.alternatives import add_options, measure_all

# Sizes at which a step takes about a second of one core, and activations are most of its peak.
SIZES = {
    "gpt2": ("layers=6", "batch=2", "tokens=256", "width=384", "heads=6", "words=8192"),
    "resnet50": ("batch=4", "pixels=128", "width=32"),
}
BATCHES_BY_INDUCTOR = {"gpt2": 12, "resnet50": 16}
WAYS = {
    "eager": ("plain", "memplan=100%", "checkpoint", "memplan=checkpoint"),
    "inductor": (
        *("inductor", "inductor=0.5", "inductor=0.3", "inductor=0.1"),
        *("memplan+inductor=inductor", "memplan+inductor=inductor=0.5"),
        "memplan+inductor=inductor/2",
    ),
}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "examples", nargs="*", help=f"of {', '.join(SIZES)}; both if none is named"
    )
    parser.add_argument("--batch", type=int, help="instead of that of the example")
    parser.add_argument("--lowering", choices=WAYS, default="eager")
    add_options(parser, rounds=9, time_limit_s=10.0)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for example in options.examples or SIZES:
        options.example, options.sizes = example, list(SIZES[example])
        batch = options.batch
        if options.lowering == "inductor":
            batch = batch or BATCHES_BY_INDUCTOR[example]
        if batch:
            options.sizes.append(f"batch={batch}")
        with tempfile.TemporaryDirectory() as folder:
            ways = WAYS[options.lowering]
            rows += [{"example": example} | row for row in measure_all(ways, folder, options)]
    Console(width=110).print(_table(rows))
    if options.json:
        _write(options.json, rows)
    return 0


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows; those of examples that did not run this time stay as they are."""
    old = json.loads(path.read_text()) if path.exists() else []
    ran = {row["example"] for row in rows}
    rows = [row for row in old if row["example"] not in ran] + rows
    rows.sort(key=lambda row: list(SIZES).index(row["example"]))
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None)
    for column in ("example", "way", "peak", "step", "of first", "gradient error"):
        table.add_column(column, justify="left" if column in ("example", "way") else "right")
    for row in rows:
        if "error" in row:
            table.add_row(row["example"], row["way"], row["error"])
            continue
        table.add_row(
            row["example"],
            row["way"],
            f"{row['peak_bytes'] / 1e6:.1f} MB",
            f"{row['step_s']:.3f} s",
            f"x {row['ratio']:.3f}",
            f"{row['gradient_error']:.1e}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
