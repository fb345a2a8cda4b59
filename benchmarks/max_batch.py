"""The largest batch that fits a device, without a plan and with one of 30 % extra time at most.

    python -m benchmarks.max_batch --json benchmarks/results/max_batch.json

runs `memplan maxbatch` on the examples, each in its own process. Nothing is trained and no device
is needed: steps are captured without memory and priced by the analytic profile.
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

from benchmarks.fill_readme import ROOT

EXAMPLES = ("vgg16", "resnet50", "unet", "vit_b16", "gpt2")
DEVICE = "rtx3090"
EXTRA_PERCENT = 30

Row = dict[str, Any]


def main() -> int:
    """Print one line an example."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=EXAMPLES, help="examples; by default five")
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--extra-time", type=float, default=EXTRA_PERCENT, metavar="PERCENT")
    parser.add_argument(
        "--time-limit", type=float, default=10.0, help="for each batch, in seconds"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rows = []
    for name in options.names:
        rows.append(largest_batches(name, options))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    Console(width=120).print(_table(rows))
    return 0


def largest_batches(name: str, options: argparse.Namespace) -> Row:
    """Return what `memplan maxbatch` says of one example."""
    command = [sys.executable, "-m", "memplan", "maxbatch", str(ROOT / "examples" / f"{name}.py")]
    command += ["--device", options.device, "--extra-time", str(options.extra_time), "--json"]
    command += ["--time-limit", str(options.time_limit)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row: Row = {"example": name, "device": options.device}
    if done.returncode:
        return row | {"error": done.stderr.strip().splitlines()[-1]}
    found: Row = json.loads(done.stdout)
    return row | found | {"seconds": time.perf_counter() - began}


def _table(rows: list[Row]) -> Table:
    table = Table("example", "unplanned", "planned", "times", "extra time", "captures", "seconds")
    for row in rows:
        if "error" in row:
            table.add_row(row["example"], row["error"])
            continue
        table.add_row(
            row["example"],
            str(row["unplanned_batch"]),
            str(row["planned_batch"]),
            f"{row['ratio']:.2f}",
            f"{row['overhead']:+.1%}",
            str(len(row["batches_tried"])),
            f"{row['seconds']:.0f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
