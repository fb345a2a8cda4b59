"""`memplan maxbatch`: the largest batch that fits, unplanned and planned."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memplan.commands.model_step import budget_of_device, capture_step, read_file
from memplan.commands.options import (
    GET_DEVICE,
    GET_JSON,
    GET_OPTIMIZER,
    GET_SOLVER,
    PATH,
    get_time_limit,
)
from memplan.errors import UsageError
from memplan.planner.solver import load_solver
from memplan.progress import Stages, stages_shown
from memplan.results import print_json
from memplan.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from memplan.graph_capture.graph import Graph
    from memplan.planner.max_batch import BatchSearch
    from memplan.planner.plan import Plan

# Batch normalisation cannot train on one sample.
_FIRST_BATCH = 2


@click.command(
    short_help="Find the largest batch that fits.",
    epilog="Example: memplan maxbatch examples/resnet50.py --device t4 --extra-time 30",
)
@click.argument("file", type=PATH)
@click.option("--budget", metavar="SIZE", help="Bytes, 8GB or 7.5GiB; by default the device's.")
@GET_DEVICE
@GET_SOLVER
@GET_OPTIMIZER
@click.option(
    "--extra-time",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Plans that take longer do not count.",
)
@get_time_limit(10.0)
@GET_JSON
def maxbatch(
    file: Path,
    budget: str | None,
    device: str | None,
    solver: str,
    optimizer: str | None,
    extra_time: float | None,
    time_limit: float,
    as_json: bool,
) -> None:
    """Find the largest batch of the model in FILE that fits, without and with a plan.

    FILE's example_inputs takes `batch`. No weights are allocated and prices are analytic.
    --time-limit is for each batch that is tried.
    """
    from memplan.planner.max_batch import BatchSearch
    from memplan.planner.problem import Limits

    room = budget_of_device(budget, device)
    if isinstance(room, str) and (room.strip().lower() == "min" or "%" in room):
        raise UsageError(
            f"the budget must be a size such as 8GB, not {room!r}, for a batch to fit"
        )
    found = load_solver(solver)
    with stages_shown() as stages, redirect_stdout(sys.stderr):
        stages("capturing", 0, 0)
        search = BatchSearch(
            capture=_capturer(file, optimizer, device, stages),
            budget_bytes=parse_bytes(room),
            solver=found,
            limits=Limits(time_s=time_limit),
            most_extra_time=float("inf") if extra_time is None else extra_time / 100,
        )
        unplanned = search.largest_unplanned(_FIRST_BATCH)
        planned = search.largest_planned(unplanned)
        plan = _plan(search, planned, solver) if planned else None
    result = _result(search, unplanned, planned, plan)
    if as_json:
        print_json(result)
    else:
        _print(result, plan)


def _capturer(file: Path, optimizer: str | None, device: str | None, stages: Stages) -> Any:
    model_file = read_file(file, offline=True)

    def capture(batch: int) -> Graph:
        import torch

        stages(f"capturing batch {batch}", 0, 0)
        # Each batch is a step of its own; kept traces would only fill Dynamo's cache.
        torch._dynamo.reset()
        return capture_step(
            model_file.with_batch(batch),
            optimizer=optimizer,
            device=device,
            profile="analytic",
            stages=stages,
        )

    return capture


def _plan(search: BatchSearch, batch: int, solver: str) -> Plan:
    from memplan.planner.pipeline import make_plan

    graph = search.graph(batch)
    return make_plan(graph, search.budget_bytes, solver=solver, limits=search.limits)


def _result(
    search: BatchSearch, unplanned: int, planned: int, plan: Plan | None
) -> dict[str, Any]:
    return {
        "budget_bytes": search.budget_bytes,
        "unplanned_batch": unplanned,
        "planned_batch": planned,
        "ratio": planned / unplanned if unplanned else None,
        "overhead": plan.overhead if plan is not None else None,
        "proven_bound": plan.proven_bound if plan is not None else None,
        "planned_peak_bytes": plan.planned_peak_bytes if plan is not None else None,
        "unplanned_peak_bytes": plan.unplanned_peak_bytes if plan is not None else None,
        "smallest_peak_bytes": search.unplanned_peak_bytes(min(search.tried)),
        "batches_tried": search.tried,
    }


def _print(result: dict[str, Any], plan: Plan | None) -> None:
    from memplan.tables import print_plainly

    budget = format_bytes(result["budget_bytes"])
    if plan is None:
        least = format_bytes(result["smallest_peak_bytes"])
        batch = min(result["batches_tried"])
        print_plainly(f"no batch fits {budget}: one of {batch} takes {least} without a plan")
        return
    unplanned, planned = result["unplanned_batch"], result["planned_batch"]
    times = f"{planned / unplanned:.1f} times as large" if unplanned else "nothing fits unplanned"
    print_plainly(
        f"unplanned  {unplanned:6,} is the largest batch within {budget}",
        f"planned    {planned:6,} {times}, at {plan.overhead:+.1%} time (by the profile)",
        f"peak       {format_bytes(plan.planned_peak_bytes)} planned, "
        f"{format_bytes(plan.unplanned_peak_bytes)} without the plan",
    )
