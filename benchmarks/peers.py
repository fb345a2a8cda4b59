"""The planner against its peers on one training step: extra time against peak, PNG and JSON.

    python -m benchmarks.peers [gpt2|resnet50|unet|GRAPH.json] [--time-limit 20] [-o docs]

All are on the same graph, costs and judge: captured with fake tensors and the analytic profile
of an A100, every point verified and its time and peak computed by `simulate`. Methods that look
at no budget (Chen's, PyTorch's min-cut, `activation_memory_budget` from 0 to 1 as its knapsack,
one `torch.utils.checkpoint` a block) have the points that they have; the others are asked for
each budget; where Checkmate's MILP is too large it has none. Then `auto` is asked for the peak
of every point that no other peer beats in both: it should need no more time at any of them.
Rockmate is compared with by `rockmate_ground`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.plans.checkpoints import blocks_of, checkpointed
from benchmarks.plans.steps import STEPS, Step, captured
from memplan.comparison import print_comparison, split_list
from memplan.comparison_plot import draw_comparison
from memplan.graph_capture.graph import Graph
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.checkpoints import forward_end
from memplan.planner.compare import ComparisonRow, compare
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from memplan.solvers.chains.chen_greedy import ChenGreedy
from memplan.solvers.partitions.knapsack import Knapsack

BUDGETS = "90%,80%,70%,60%,50%,40%,30%,20%"
ASKED = ("checkmate", "rotor", "dtr")
"""Peers that plan for a budget."""
FIXED = ("chen-sqrt", "min-cut")
"""Peers with one plan whatever the budget."""
BLOCKS = "a checkpoint a block"
_RESNET = STEPS["resnet152"].blocks
NAMED = {
    "gpt2": STEPS["gpt2_12"],
    "resnet50": Step(example="resnet50", blocks=_RESNET),
    "unet": Step(example="unet", blocks=STEPS["unet_deep"].blocks),
}
_SAME = 5e-5
"""Points are taken to be equal where they differ by less of the step."""


def main() -> int:
    """Ask, draw and write; the exit code is 1 where a peer is better."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", nargs="?", default="gpt2", help="an example or a graph file")
    parser.add_argument("--budgets", default=BUDGETS)
    parser.add_argument("--solvers", default=",".join(ASKED), help="peers that take a budget")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds a point")
    parser.add_argument("--processes", type=int, help="by default one a core")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs"), help="folder")
    options = parser.parse_args()
    graph, name, blocks = step_graph(options.step)
    budgets = split_list(options.budgets, "budgets")
    asking = {"time_limit": options.time_limit, "processes": options.processes, "done": _say}
    peers = [*plans_without_budget(graph, blocks), *compare(graph, ["100%"], FIXED, **asking)]
    peers += compare(graph, budgets, split_list(options.solvers, "solvers"), **asking)
    peers = [row for row in peers if not handed_back(row)]
    front = pareto(peers)
    asked = sorted({row.peak_bytes for row in front if row.peak_bytes is not None})
    ours = compare(graph, [*asked, *budgets], ["auto"], **asking)
    rows = [*ours, *peers]
    print_comparison(rows)
    better = beaten(front, ours)
    for peer, own in better:
        print(f"{peer.solver}: +{peer.overhead:.2%} at {peer.peak_bytes:,} bytes, auto {own}")
    print(f"auto: no more time than any peer at {len(front) - len(better)} of {len(front)} points")
    options.output.mkdir(parents=True, exist_ok=True)
    title = f"One training step of {graph.name or name}: {len(graph.ops)} ops"
    draw_comparison(rows, title, options.output / f"peers_{name}.png")
    figures = {
        "graph": name,
        "ops": len(graph.ops),
        "time_limit_s": options.time_limit,
        "peers_better_at": [[peer.solver, peer.peak_bytes, own] for peer, own in better],
        "rows": [row.to_dict() for row in rows],
    }
    path = options.output / f"peers_{name}.json"
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 1 if better else 0


def _say(row: ComparisonRow, done: int, total: int) -> None:
    print(f"{done}/{total} {row.solver} {row.budget} {row.status}", file=sys.stderr, flush=True)


def step_graph(step: str) -> tuple[Graph, str, str]:
    """Return the graph of an example or file, a short name, and the pattern of its blocks."""
    if step in NAMED:
        return captured(NAMED[step]), step, NAMED[step].blocks
    return read_graph(step), Path(step).stem, ""


def plans_without_budget(graph: Graph, blocks: str) -> Iterator[ComparisonRow]:
    """Yield the best points of methods that are swept by a setting of their own."""
    never = time.monotonic() + 3600.0
    yield from pareto(_rows(graph, "chen-greedy", ChenGreedy()._plans(graph, never)))
    yield from pareto(_rows(graph, "knapsack", Knapsack()._plans(graph, never)))
    found = blocks_of(graph, blocks) if blocks else {}
    if found and forward_end(graph) == graph.boundary:
        yield from _rows(graph, BLOCKS, [checkpointed(graph, list(found.values()))])


def _rows(graph: Graph, name: str, plans: Iterable[Sequence[int]]) -> list[ComparisonRow]:
    """Return what plans take, each with its own peak as its budget."""
    rows = []
    for plan in plans:
        schedule = schedule_of(graph, plan)
        timeline = simulate(graph, schedule)
        verify(Problem(graph=graph, budget_bytes=timeline.peak_bytes), schedule)
        rows.append(
            ComparisonRow(
                solver=name,
                budget="its own",
                budget_bytes=timeline.peak_bytes,
                status="feasible",
                overhead=timeline.time_ns / max(1, graph.time_ns) - 1,
                peak_bytes=timeline.peak_bytes,
            )
        )
    return rows


def handed_back(row: ComparisonRow) -> bool:
    """Whether Checkmate did not try, and returned this project's schedule that it starts from."""
    return row.solver == "checkmate" and row.overhead is not None and bool(row.reason)


def pareto(rows: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows that no other beats in peak and time, the smallest peak first."""
    planned = [
        (row.peak_bytes, row.overhead, at, row)
        for at, row in enumerate(rows)
        if row.peak_bytes is not None and row.overhead is not None
    ]
    best: list[ComparisonRow] = []
    for _, overhead, _, row in sorted(planned, key=lambda point: point[:3]):
        if not best or overhead < (best[-1].overhead or 0.0):
            best.append(row)
    return best


def beaten(
    peers: Sequence[ComparisonRow], ours: Sequence[ComparisonRow]
) -> list[tuple[ComparisonRow, float | None]]:
    """Return the peers' points at which our cheapest plan of no more memory takes longer."""
    found: list[tuple[ComparisonRow, float | None]] = []
    for peer in peers:
        within = [
            row.overhead
            for row in ours
            if row.overhead is not None and (row.peak_bytes or 0) <= (peer.peak_bytes or 0)
        ]
        own = min(within, default=None)
        if own is None or own > (peer.overhead or 0.0) + _SAME:
            found.append((peer, own))
    return found


if __name__ == "__main__":
    sys.exit(main())
