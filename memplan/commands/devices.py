"""`memplan devices` and `memplan calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from memplan.commands.options import GET_JSON, PATH
from memplan.results import print_json
from memplan.units import format_bytes

if TYPE_CHECKING:
    from memplan.graph_capture.device import Device

_SHOWN_DTYPES = ("float32", "tfloat32", "bfloat16", "float16")


@click.command(
    short_help="List the devices that can be planned for.", epilog="Example: memplan devices"
)
@GET_JSON
def devices(as_json: bool) -> None:
    """List the devices that come with memplan, and those of your own device file."""
    from memplan.graph_capture.devices import known_devices, users_file
    from memplan.tables import print_plainly

    known = list(known_devices().values())
    if as_json:
        print_json([device_result(device) for device in known])
        return
    print_plainly(_table(known))
    print_plainly("", f"Peak rates as vendors print them; your own go to {users_file()}")


@click.command(
    short_help="Measure this machine and write a device file.",
    epilog="Example: memplan calibrate --name here && memplan estimate model.py --device here",
)
@click.option("--name", default="here", show_default=True, help="What to call the device.")
@click.option(
    "--on",
    "torch_type",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="What to measure.",
)
@click.option(
    "-o", "--output", type=PATH, metavar="FILE", help="File to write; by default your own."
)
@GET_JSON
def calibrate(name: str, torch_type: str, output: Path | None, as_json: bool) -> None:
    """Measure products, copies and launches on this machine and write them as a device.

    A device of the same name in the file is replaced, others stay.
    """
    from memplan.graph_capture import calibration
    from memplan.graph_capture.device_files import write_device
    from memplan.graph_capture.devices import users_file
    from memplan.progress import stages_shown
    from memplan.tables import print_plainly

    path = output or users_file()
    with stages_shown() as stages:
        measured = calibration.calibrate(name, torch_type, stages)
    write_device(path, measured)
    if as_json:
        print_json(device_result(measured) | {"file": str(path)})
        return
    print_plainly(_table([measured]))
    use = name if output is None else f"{path}:{name}"
    click.echo(f"written to {path}; use it with --device {use}", err=True)


def device_result(device: Device) -> dict[str, Any]:
    """Return a device under the keys that machines read."""
    return {
        "name": device.name,
        "torch_type": device.torch_type,
        "memory_bytes": device.memory_bytes,
        "flops_per_s": dict(device.flops_per_s),
        "bandwidth_bytes_per_s": device.bandwidth_bytes_per_s,
        "host_bandwidth_bytes_per_s": device.host_bandwidth_bytes_per_s,
        "launch_ns": device.launch_ns,
        "alignment_bytes": device.alignment_bytes,
        "overhead_bytes": device.overhead_bytes,
        "efficiency": dict(device.efficiency),
        "source": device.source,
    }


def _table(known: Sequence[Device]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = ("name", "memory", *(f"{dtype} TFLOP/s" for dtype in _SHOWN_DTYPES))
    for column in (*columns, "memory/s", "host link/s", "launch us", "rounds to"):
        table.add_column(column, justify="left" if column == "name" else "right", no_wrap=True)
    for device in known:
        rates = dict(device.flops_per_s)
        link = device.host_bandwidth_bytes_per_s
        table.add_row(
            device.name,
            f"{device.memory_bytes / 2**30:.1f} GiB",
            *(f"{rates[d] / 1e12:.4g}" if d in rates else "-" for d in _SHOWN_DTYPES),
            format_bytes(device.bandwidth_bytes_per_s),
            format_bytes(link) if link else "-",
            f"{device.launch_ns / 1000:.1f}",
            f"{device.alignment_bytes} B",
        )
    return table
