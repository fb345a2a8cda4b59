"""The command `memplan compare`: solvers at several budgets, on one step."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from memplan.commands.options import GET_JSON, GET_OPTIMIZER, PATH, get_time_limit
from memplan.progress import stages_shown
from memplan.results import print_json


@click.command(
    name="compare",
    short_help="Compare solvers on one training step.",
    epilog="Example: memplan compare examples/vgg16.py --budgets 80%,90% --solvers auto,rotor",
)
@click.argument("file", type=PATH)
@click.option("--budgets", required=True, metavar="SIZES", help="Such as 30%,50%,8GB or min.")
@click.option(
    "--solvers",
    metavar="NAMES",
    help="Such as auto,dtr,dtr:heuristic=lru; by default all of them.",
)
@get_time_limit(20.0)
@click.option("--profile", default="measured", show_default=True, metavar="KIND")
@GET_OPTIMIZER
@click.option(
    "--link",
    metavar="SPEED",
    help="Solvers may move tensors to the host over a link of this speed, as 25GB/s.",
)
@click.option("--plot", type=PATH, metavar="PICTURE", help="Draw extra time against the peak.")
@GET_JSON
def compare(
    file: Path,
    budgets: str,
    solvers: str | None,
    time_limit: float,
    profile: str,
    optimizer: str | None,
    link: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Ask solvers for plans of FILE: a model in Python, or a graph in JSON.

    Each runs in its own process; one that fails or runs out of time is a row.
    """
    from memplan import comparison
    from memplan.comparison_plot import draw_comparison
    from memplan.planner.compare import compare as compare_solvers

    comparison.check_picture(plot)
    names = None if solvers is None else comparison.split_list(solvers, "solvers")
    sizes = comparison.split_list(budgets, "budgets")
    tiers = () if link is None else (comparison.host_behind(link),)
    with stages_shown() as stages, redirect_stdout(sys.stderr):
        graph = comparison.graph_to_compare(file, profile, optimizer, stages)
        stages("comparing", 0, 0)
        rows = compare_solvers(
            *(graph, sizes, names),
            time_limit=time_limit,
            tiers=tiers,
            done=lambda row, done, total: stages("comparing", done, total),
        )
    if plot is not None:
        draw_comparison(rows, f"One training step of {graph.name}", plot)
    if as_json:
        print_json([row.to_dict() for row in rows])
    else:
        comparison.print_comparison(rows)
