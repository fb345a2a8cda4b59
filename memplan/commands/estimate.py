"""`memplan estimate`: what a training step takes on a device, and whether it fits."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memplan.commands.model_step import read_file
from memplan.commands.options import GET_JSON, GET_OPTIMIZER, PATH
from memplan.progress import stages_shown
from memplan.results import print_json
from memplan.units import format_bytes, format_ns

if TYPE_CHECKING:
    from memplan.estimates import Estimate

_MOST_MODULES = 12


@click.command(
    short_help="Say what a training step takes, and whether it fits.",
    epilog="Example: memplan estimate examples/gpt2.py --device rtx3090 --optimizer adamw",
)
@click.argument("file", type=PATH)
@click.option("--device", metavar="NAME", help="One of `memplan devices`, or a TOML file.")
@GET_OPTIMIZER
@click.option("--accumulate", is_flag=True, help="Gradients are accumulated over several steps.")
@click.option(
    "--batch", type=click.IntRange(min=1), metavar="N", help="Batch size for example_inputs."
)
@GET_JSON
def estimate(
    file: Path,
    device: str | None,
    optimizer: str | None,
    accumulate: bool,
    batch: int | None,
    as_json: bool,
) -> None:
    """Say what a training step of the model in FILE takes, of what, and whether it fits.

    Nothing is run or solved and no weights are allocated: any model can be estimated for any
    device on any machine.
    """
    from memplan import estimates
    from memplan.graph_capture.devices import find_device

    target = find_device(device or "cpu")
    with stages_shown() as stages, redirect_stdout(sys.stderr):
        stages("capturing", 0, 0)
        model_file = read_file(file, offline=True)
        if batch is not None:
            model_file = model_file.with_batch(batch)
        found = estimates.estimate(
            model_file.model,
            model_file.args,
            model_file.kwargs,
            loss=model_file.loss,
            optimizer=optimizer or model_file.optimizer,
            device=target,
            accumulate=accumulate,
            progress=stages,
        )
    if as_json:
        print_json(estimate_result(found))
    else:
        _print(found)


def estimate_result(found: Estimate) -> dict[str, Any]:
    """Return an estimate under the keys that machines read."""
    return {
        "device": found.device.name,
        "memory_bytes": found.device.memory_bytes,
        "fits": found.fits,
        "may_fit_planned": found.may_fit_planned,
        "total_bytes": found.total_bytes,
        "overhead_bytes": found.overhead_bytes,
        "unplanned_peak_bytes": found.peak_bytes,
        "limit_bytes": found.limit_bytes,
        "bytes": dict(found.bytes),
        "modules": dict(found.modules),
        "peak_op": found.peak_op,
        "peak_module": found.peak_module,
        "time_ns": found.time_ns,
        "ops": len(found.graph.ops),
        "tensors": len(found.graph.tensors),
        "notes": list(found.notes),
    }


def _print(found: Estimate) -> None:
    from memplan.planner.grouping import grouped
    from memplan.tables import print_plainly, share_table

    total = found.total_bytes
    rows = {**found.bytes, "framework overhead": found.overhead_bytes}
    print_plainly(share_table("at the peak", rows, total), "")
    if any(found.modules):
        what = "activations and temporaries by module"
        print_plainly(share_table(what, grouped(found.modules), total, most=_MOST_MODULES), "")
    where = f" in {found.peak_module}" if found.peak_module else ""
    print_plainly(
        f"peak  {format_bytes(total)} ({total:,} bytes) while {found.peak_op!r}{where} runs; "
        f"step about {format_ns(found.time_ns)} by the analytic profile",
        verdict(found),
        *(f"note: {note}" for note in found.notes),
    )


def verdict(found: Estimate) -> str:
    """Return in one line whether the step fits and what to do where it does not."""
    device, total = found.device, found.total_bytes
    has = f"{device.name} has {format_bytes(device.memory_bytes)}"
    if found.fits:
        left = format_bytes(device.memory_bytes - total)
        return f"fits  {has}: {left} are left"
    short = format_bytes(total - device.memory_bytes)
    room = format_bytes(device.memory_bytes - found.overhead_bytes)
    least = format_bytes(found.limit_bytes + found.overhead_bytes)
    if found.may_fit_planned:
        return (
            f"does not fit  {has}, {short} too little; a plan may: no plan goes below {least}; "
            f"try `memplan compile --budget {room.replace(' ', '')} --device {device.name}`"
        )
    return (
        f"does not fit  {has}, {short} too little, and no plan that recomputes can help: none "
        f"goes below {least}; use a smaller batch, another optimizer or half precision"
    )
