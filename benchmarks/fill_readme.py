"""Put the figures of the last benchmark runs into the README's tables.

    python -m benchmarks.verify_examples --json benchmarks/results/verify_examples.json
    python -m benchmarks.verify_examples --swap disk,host --timed-steps 0 ...
        --json benchmarks/results/verify_swaps.json
    python -m benchmarks.alternatives --json benchmarks/results/alternatives.json
    OMP_NUM_THREADS=1 python -m benchmarks.steps --clock cpu --json benchmarks/results/steps.json
    OMP_NUM_THREADS=1 python -m benchmarks.steps --lowering inductor --clock cpu
        --json benchmarks/results/steps_inductor.json
    python -m benchmarks.max_batch --json benchmarks/results/max_batch.json
    python -m benchmarks.plans steps --clock cpu --json benchmarks/results/plans.json
    python -m benchmarks.plans published --gap 0 --clock cpu --json benchmarks/results/plans.json
    python -m benchmarks.plans traces --time-limit 20 --clock cpu
        --json benchmarks/results/plans.json
    python -m benchmarks.fill_readme [--check]

Each table stands between two comments that name it, and is replaced as a whole. With `--check`
nothing is written; the exit code says whether the README is up to date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"

Row = dict[str, Any]


def main() -> int:
    """Rewrite the README, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    old = README.read_text(encoding="utf-8")
    new = filled(old, RESULTS)
    if options.check:
        return 0 if new == old else 1
    README.write_text(new, encoding="utf-8")
    return 0


def filled(text: str, results: Path) -> str:
    """Return `text` with the tables whose results are there; the others stay as they are."""
    for name, (file, table) in TABLES.items():
        path = results / f"{file}.json"
        if path.exists():
            rows = table(json.loads(path.read_text(encoding="utf-8")))
            text = _replace(text, name, rows)
    return text


def verify_examples(rows: Sequence[Row]) -> str:
    """One line for each example and budget."""
    lines = _head("example", "budget", "unplanned", "planned", "measured", "extra time", "equal")
    for row in rows:
        if "error" in row:
            lines.append(_line(row["example"], row["error"], *[""] * 5))
            continue
        lines.append(
            _line(
                row["example"],
                f"{_gb(row['budget_bytes'])} ({row['asked']})",
                _gb(row["unplanned_peak_bytes"]),
                _gb(row["planned_peak_bytes"]),
                f"{_gb(row['measured_peak_bytes'])} ({row['off']:+.2%})",
                f"+{row['overhead']:.1%}",
                "yes" if row["identical"] else "**no**",
            )
        )
    return "\n".join(lines)


def verify_swaps(rows: Sequence[Row]) -> str:
    """One line for each example, place to move to, and budget."""
    lines = _head(
        "example", "moved to", "budget", "moved in a step", "planned", "measured", "equal"
    )
    for row in rows:
        if "error" in row:
            lines.append(_line(row["example"], row["swap"], row["error"], *[""] * 4))
            continue
        lines.append(
            _line(
                *(row["example"], row["swap"]),
                f"{_gb(row['budget_bytes'])} ({row['asked']})",
                _gb(row["moved_bytes"]),
                _gb(row["planned_peak_bytes"]),
                f"{_gb(row['measured_peak_bytes'])} ({row['off']:+.2%})",
                "yes" if row["identical"] else "**no**",
            )
        )
    return "\n".join(lines)


def alternatives(rows: Sequence[Row]) -> str:
    """One line for each way to train the same model."""
    lines = _head("way", "peak", "of plain", "step", "of plain", "gradients differ by")
    base = next((r for r in rows if r["way"] == "plain" and "error" not in r), None)
    for row in rows:
        if "error" in row:
            lines.append(_line(row["way"], row["error"], *[""] * 4))
            continue
        lines.append(
            _line(
                row["way"],
                _gb(row["peak_bytes"]),
                f"{row['peak_bytes'] / base['peak_bytes']:.0%}" if base else "",
                f"{row['step_s']:.1f} s",
                f"x {row['step_s'] / base['step_s']:.2f}" if base else "",
                f"{row['gradient_error']:.1e}" if row["gradient_error"] else "0",
            )
        )
    return "\n".join(lines)


def steps(rows: Sequence[Row]) -> str:
    """One line an example: each way's peak, and its time beside that of the plain step."""
    ways = {"memplan=100%": "keep all", "checkpoint": "checkpoint a block"}
    ways |= {"memplan=checkpoint": "memplan there"}
    lines = _head("example", "plain", *ways.values())
    for example in dict.fromkeys(row["example"] for row in rows):
        by_way = {row["way"]: row for row in rows if row["example"] == example}
        plain = by_way["plain"]
        cells = [f"{_mb(plain['peak_bytes'])}, {plain['step_s']:.2f} s"]
        for way in ways:
            row = by_way[way]
            cells.append(row.get("error") or f"{_mb(row['peak_bytes'])}, x {row['ratio']:.2f}")
        lines.append(_line(example, *cells))
    return "\n".join(lines)


def steps_inductor(rows: Sequence[Row]) -> str:
    """One line an example: each way's peak, and its time beside that of torch.compile."""
    lines = _head("example", "`torch.compile`", "its memory budget", "memplan", "there", "at half")
    for example in dict.fromkeys(row["example"] for row in rows):
        by_way = {row["way"]: row for row in rows if row["example"] == example}
        knobs = [row for way, row in by_way.items() if way.startswith("inductor=")]
        least = min(knobs, key=lambda row: row["peak_bytes"])
        asked = [by_way["inductor"], least]
        ours = ("inductor", least["way"], "inductor/2")
        asked += [by_way[f"memplan+inductor={way}"] for way in ours]
        lines.append(
            _line(
                example,
                *(
                    row.get("error") or f"{_mb(row['peak_bytes'])}, x {row['ratio']:.2f}"
                    for row in asked
                ),
            )
        )
    return "\n".join(lines)


def max_batch(rows: Sequence[Row]) -> str:
    """One line an example: the largest batch without a plan, and with one."""
    lines = _head("example", "unplanned", "planned", "times as large", "extra time")
    for row in rows:
        if "error" in row:
            lines.append(_line(row["example"], row["error"], *[""] * 3))
            continue
        batches = str(row["unplanned_batch"]), str(row["planned_batch"])
        lines.append(
            _line(row["example"], *batches, f"x {row['ratio']:.2f}", f"+{row['overhead']:.1%}")
        )
    return "\n".join(lines)


def plans(rows: Sequence[Row]) -> str:
    """One line for each real step: its plans, and one checkpoint a block."""
    asked = {(r["graph"], r["asked"]): r for r in rows if r["table"] == "steps"}
    lines = _head(
        *("step", "ops", "checkpoint a block", "memplan there", "at 50 %", "at 30 %", "at 25 %"),
        *("proven gap", "first plan", "solving"),
    )
    for name in dict.fromkeys(graph for graph, _ in asked):
        ours = [row for (graph, _), row in asked.items() if graph == name]
        found = [row for row in ours if "extra" in row]
        block = asked.get((name, "block"), {})
        there = "" if not block else _extra(block, "checkpoint_extra")
        lines.append(
            _line(
                name,
                str(ours[0]["ops"]),
                f"{there} at {block['checkpoint_peak']:.0%}" if block else "",
                *(_extra(asked.get((name, key), {})) for key in ("block", "50", "30", "25")),
                f"{max(row['gap'] for row in found):.1%}",
                f"{max(row['first_seconds'] for row in found):.1f} s",
                f"{max(row['seconds'] for row in found):.0f} s",
            )
        )
    return "\n".join(lines)


def published(rows: Sequence[Row]) -> str:
    """One line for each family of published instances: its plans beside the best known."""
    lines = _head(
        *("instances", "pairs", "at or below", "optimal", "extra time", "known", "solving"),
    )
    for family, (name, source) in PUBLISHED.items():
        known = [
            row
            for row in rows
            if row["graph"].startswith(family) and row["known"] is not None and "extra" in row
        ]
        if not known:
            continue
        best = [row for row in known if row["extra"] <= row["known"] + _ROUNDED]
        lines.append(
            _line(
                f"{name}: {source}",
                str(len(known)),
                str(len(best)),
                str(sum(row["status"] == "optimal" for row in known)),
                *(f"+{_mean_share(known, key):.2%}" for key in ("extra", "known")),
                f"{max(row['seconds'] for row in known):.0f} s",
            )
        )
    return "\n".join(lines)


def _mean_share(rows: Sequence[Row], key: str) -> float:
    """Return the geometric mean of the steps' times, less one."""
    return geometric_mean([1 + row[key] for row in rows]) - 1


PUBLISHED = {
    "monet": ("CNNs", "Gurobi, up to 24 h"),
    "cm_": ("Checkmate's", "proven optimal"),
    "rl": ("random layered", "Moccasin and proven, order kept"),
    "dtr": ("DTR's traces", "its heuristic"),
}
"""By the beginning of the instances' names: what they are, and whose the known values are."""

_ROUNDED = 5e-5
"""Known values are given in hundredths of a per cent."""


def _extra(row: Row, key: str = "extra") -> str:
    if key in row:
        return f"+{row[key]:.1%}"
    return {"infeasible": "cannot fit", None: ""}.get(row.get("status"), "none found")


TABLES: dict[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "verify_examples": ("verify_examples", verify_examples),
    "verify_swaps": ("verify_swaps", verify_swaps),
    "alternatives": ("alternatives", alternatives),
    "steps": ("steps", steps),
    "steps_inductor": ("steps_inductor", steps_inductor),
    "plans": ("plans", plans),
    "published": ("plans", published),
    "max_batch": ("max_batch", max_batch),
}


def _replace(text: str, name: str, table: str) -> str:
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not block.search(text):
        raise ValueError(f"the README has no place for the table {name!r}")
    return block.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text)


def _head(*names: str) -> list[str]:
    return [_line(*names), _line("---", *["---:"] * (len(names) - 1))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB"


if __name__ == "__main__":
    sys.exit(main())
