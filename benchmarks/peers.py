"""All solvers on one training step: extra time against peak, as a picture and as JSON.

    python -m benchmarks.peers [unet] [--budgets 90%,80%,...] [--time-limit 20] [-o docs]

The step is one of the examples, captured with fake tensors and the analytic profile, or a graph
file. Every point is a schedule that `verify` accepted; its time and peak are `simulate`'s.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.plans.steps import STEPS, captured
from memplan.comparison import draw_comparison, print_comparison, split_list
from memplan.graph_capture.graph import Graph
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.compare import compare

BUDGETS = "90%,80%,70%,60%,50%,40%,min"
WITHOUT = ("exhaustive", "keep-all")
"""They have no curve: one is for a dozen ops, the other has a single point."""


def main() -> int:
    """Ask, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", nargs="?", default="unet", help="an example or a graph file")
    parser.add_argument("--budgets", default=BUDGETS)
    parser.add_argument("--solvers", help="by default all that have a curve")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds a point")
    parser.add_argument("--processes", type=int, help="by default one a core")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs"), help="folder")
    options = parser.parse_args()
    graph, name = step_graph(options.step)
    solvers = split_list(options.solvers, "solvers") if options.solvers else with_a_curve()
    rows = compare(
        graph,
        split_list(options.budgets, "budgets"),
        solvers,
        time_limit=options.time_limit,
        processes=options.processes,
        done=lambda row, done, total: print(
            f"{done}/{total} {row.solver} {row.budget} {row.status}", file=sys.stderr, flush=True
        ),
    )
    print_comparison(rows)
    options.output.mkdir(parents=True, exist_ok=True)
    title = f"One training step of {graph.name or name}: {len(graph.ops)} ops"
    draw_comparison(rows, title, options.output / f"peers_{name}.png")
    figures = {
        "graph": name,
        "ops": len(graph.ops),
        "time_limit_s": options.time_limit,
        "rows": [row.to_dict() for row in rows],
    }
    path = options.output / f"peers_{name}.json"
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def step_graph(step: str) -> tuple[Graph, str]:
    """Return the graph of an example or file, and a short name for it."""
    if step in STEPS:
        return captured(STEPS[step]), step
    return read_graph(step), Path(step).stem


def with_a_curve() -> list[str]:
    """Return the installed solvers but those without a curve."""
    from memplan.planner.solver import solver_entry_points

    return [name for name in solver_entry_points() if name not in WITHOUT]


if __name__ == "__main__":
    sys.exit(main())
