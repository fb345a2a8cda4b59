"""Plans of published instances and of real training steps, beside the best known and the bounds.

    python -m benchmarks.plans [steps published traces examples] [--quick] [--time-limit 60]
        [--gap 0] [--only NAME ...] [--clock cpu] [--graphs FOLDER] [--json FILE]

* steps: joint graphs of GPT-2 with up to 96 layers, Llama 3 8B, ResNet-152, a U-Net, T5 large and
  ViT-H/14, with the memory of their activations; beside one checkpoint a block.
* examples: the whole steps of the examples, AdamW included.
* published, traces: instances looked for in ../shared/instances, which are not part of this
  project.

Every time and peak is recomputed by `simulate` from a schedule that `verify` accepted, each in a
process of its own, so that the memory is the solver's. `--clock cpu` counts the solver's seconds
by its CPU time, for a machine that others use too. With `--json` the rows of earlier runs in
the file stay, unless they are run again; each row names the commit that it was made by.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.plans.checkpoints import blocks_of, checkpointed
from benchmarks.plans.published import peak_bytes, published, traces
from benchmarks.plans.rows import Row, in_own_process
from benchmarks.plans.steps import EXAMPLES, STEPS, activations_only, example_graph, step_graph
from benchmarks.plans.tables import growth_table, limits_table, mean_extra, plans_table
from memplan.graph_capture.graph import Graph
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify

TABLES = ("steps", "published", "traces", "examples")
STEP_PERCENTS = (70, 50, 30, 25)
EXAMPLE_PERCENTS = (70, 50, 30)
QUICK = ("monet_vgg16", "monet_unet", "cm_cm1", "rl100", "vgg16", "unet", "gpt2_12", "dtr/unet")


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="a few graphs, 20 s each at most")
    parser.add_argument("--only", nargs="*", help="names of instances, steps and examples")
    parser.add_argument("--budgets", nargs="*", help="of the steps: per cents, or `block`")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a budget")
    parser.add_argument("--gap", type=float, default=0.003, help="good enough, as `memplan solve`")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--graphs", type=Path, help="folder that keeps captured graphs")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    if unknown := [table for table in options.tables if table not in TABLES]:
        parser.error(f"there is no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    if options.quick:
        options.only = options.only or QUICK
        options.time_limit = min(options.time_limit, 20.0)
    rows = _earlier(options.json)
    for row in _rows(options):
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows[row["table"], row["graph"], row["asked"]] = row
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    _print(list(rows.values()))
    return 0


def _commit() -> str:
    """Return the version of the code, with a mark where it was changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    root = Path(__file__).parent
    return subprocess.run(command, capture_output=True, text=True, cwd=root).stdout.strip()


def _earlier(path: Path | None) -> dict[tuple[str, str, str], Row]:
    if path is None or not path.exists():
        return {}
    rows: list[Row] = json.loads(path.read_text())
    return {(row["table"], row["graph"], row["asked"]): row for row in rows}


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    only = tuple(options.only) if options.only else None
    for table in options.tables or TABLES:
        if table == "steps":
            for name in STEPS:
                if only is None or name in only:
                    yield from _step_rows(name, options)
            continue
        if table == "examples":
            questions = _examples(only)
        else:
            questions = published(only) if table == "published" else traces(only)
        for name, graph, budget_bytes, known in questions:
            yield _solved(table, name, str(budget_bytes), graph, budget_bytes, known, options)


def _solved(
    table: str,
    name: str,
    asked: str,
    graph: Graph,
    budget_bytes: int,
    known: float | None,
    options: argparse.Namespace,
) -> Row:
    what = {"table": table, "graph": name, "asked": asked}
    asked_for = (budget_bytes, known, options.solver, options.time_limit, options.gap)
    what |= {"commit": _commit()}
    return what | in_own_process("plan", graph, *asked_for, clock=options.clock)


def _step_rows(name: str, options: argparse.Namespace) -> Iterator[Row]:
    graph = activations_only(step_graph(name, options.graphs))
    peak = peak_bytes(graph)
    wanted = options.budgets or [*map(str, STEP_PERCENTS), "block"]
    for percent in [asked for asked in wanted if asked != "block"]:
        budget_bytes = peak * int(percent) // 100
        yield _solved("steps", name, percent, graph, budget_bytes, None, options)
    if "block" not in wanted:
        return
    blocks = blocks_of(graph, STEPS[name].blocks)
    schedule = schedule_of(graph, checkpointed(graph, list(blocks.values())))
    timeline = simulate(graph, schedule)
    verify(Problem(graph=graph, budget_bytes=timeline.peak_bytes), schedule)
    extra = timeline.time_ns / graph.time_ns - 1
    row = _solved("steps", name, "block", graph, timeline.peak_bytes, extra, options)
    found = in_own_process("least", graph, options.time_limit / 2, clock=options.clock)
    yield (
        row
        | found
        | {
            "blocks": len(blocks),
            "checkpoint_peak": timeline.peak_bytes / peak,
            "checkpoint_extra": extra,
            "least": found["least_bytes"] / peak,
            "limit": found["limit_bytes"] / peak,
        }
    )


def _examples(only: tuple[str, ...] | None) -> Iterator[tuple[str, Graph, int, float | None]]:
    for name in EXAMPLES:
        if only is None or name in only:
            graph = example_graph(name)
            for percent in EXAMPLE_PERCENTS:
                yield name, graph, peak_bytes(graph) * percent // 100, None


def _in_order(row: Row) -> tuple[int, str, float]:
    """Steps from small to large; budgets from large to small, as far as rows have them."""
    names = list(STEPS)
    at = names.index(row["graph"]) if row["graph"] in names else -1
    return at, row["graph"] if at < 0 else "", -row.get("budget", 0.0)


def _print(rows: list[Row]) -> None:
    rows = sorted(rows, key=_in_order)
    console = Console()
    console.width = max(console.width, 120)
    titles = {
        "steps": ("Activations of real steps", "checkpoint"),
        "published": ("Published instances", "known"),
        "traces": ("Traces of DTR", "DTR"),
        "examples": ("Whole steps of the examples", "known"),
    }
    for table, (title, known) in titles.items():
        if chosen := [row for row in rows if row["table"] == table]:
            console.print(plans_table(title, chosen, known))
    steps = [row for row in rows if row["table"] == "steps"]
    if blocks := [row for row in steps if row["asked"] == "block"]:
        console.print(limits_table(blocks))
    half = [row for row in steps if row["asked"] == "50"]
    if grown := [row for row in half if row["graph"].startswith("gpt2_")]:
        console.print(growth_table(grown))
    for asked in ("50", "25") if half else ():
        mean, count = mean_extra(steps, asked)
        console.print(f"Mean extra time at {asked} % over {count} steps: {mean:.2%}")


if __name__ == "__main__":
    sys.exit(main())
