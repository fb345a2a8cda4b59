"""Device files: TOML with one table a device, ours and those that users write.

A table has

    memory_gib   what the device can hold, in units of 2^30 bytes
    flops        10^12 operations a second by dtype; float32 must be there
    bandwidth    of its memory, in 10^9 bytes a second
    launch_us    shortest time from one operation to the next

and may have `usable_mib` (of the memory, where the driver keeps some of it for itself),
`torch_type` ("cuda", or "cpu"), `host_link` (10^9 bytes a second, one way),
`alignment_bytes`, `overhead_mib`, `efficiency` (shares of the peaks by class) and `source`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.graph_capture.device import Device

# The caching allocators of CUDA and HIP round every block up to this; the CPU's takes what is
# asked for.
_ALIGNMENT_BYTES = {"cuda": 512, "cpu": 1}
_REQUIRED = ("memory_gib", "flops", "bandwidth", "launch_us")
_OPTIONAL = (
    "usable_mib",
    "torch_type",
    "host_link",
    "alignment_bytes",
    "overhead_mib",
    "efficiency",
    "source",
)
EFFICIENCY_CLASSES = ("matmul", "convolution", "attention", "pointwise", "bandwidth")


def read_devices(path: Path) -> dict[str, Device]:
    """Return the devices of a file by name.

    Raises:
        UsageError: The file cannot be read, or a field is missing, negative or not known; the
            text names file, device and field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read the device file {path}: {reason}") from None
    return parse_devices(text, str(path))


def parse_devices(text: str, where: str) -> dict[str, Device]:
    """Return the devices in the text of a device file, by name.

    Args:
        text: TOML.
        where: What to call the file in errors.

    Raises:
        UsageError: As `read_devices`.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not TOML: {error}") from None
    if loose := [name for name, fields in tables.items() if not isinstance(fields, dict)]:
        raise UsageError(f"{where}: {loose[0]!r} stands outside of a table such as [my-gpu]")
    return {name: _device(name, fields, f"{where}, [{name}]") for name, fields in tables.items()}


def format_device(device: Device) -> str:
    """Return the table of a device as `parse_devices` reads it, rates to four digits."""
    flops = ", ".join(f"{dtype} = {rate / 1e12:.4g}" for dtype, rate in device.flops_per_s)
    lines = [
        f"[{json.dumps(device.name)}]",
        f"source = {json.dumps(device.source)}",
        f'torch_type = "{device.torch_type}"',
        f"memory_gib = {device.memory_bytes / 2**30:.4f}",
        f"flops = {{ {flops} }}",
        f"bandwidth = {device.bandwidth_bytes_per_s / 1e9:.4g}",
        f"launch_us = {device.launch_ns / 1000:.4g}",
        f"alignment_bytes = {device.alignment_bytes}",
        f"overhead_mib = {device.overhead_bytes / 2**20:.4g}",
    ]
    if device.host_bandwidth_bytes_per_s is not None:
        lines.append(f"host_link = {device.host_bandwidth_bytes_per_s / 1e9:.4g}")
    if device.efficiency:
        shares = ", ".join(f"{name} = {share:.4g}" for name, share in device.efficiency)
        lines.append(f"efficiency = {{ {shares} }}")
    return "\n".join(lines) + "\n"


def write_device(path: Path, device: Device) -> None:
    """Write a device to a file; one of the same name in it is replaced, others stay.

    Comments in the file are lost.

    Raises:
        UsageError: The file is there and is no device file, or cannot be written to.
    """
    devices = read_devices(path) if path.exists() else {}
    texts = [format_device(known) for known in (devices | {device.name: device}).values()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(texts), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the device file {path}: {error.strerror}") from None


def _device(name: str, fields: Mapping[str, Any], where: str) -> Device:
    _check_names(fields, where)
    torch_type = fields.get("torch_type", "cuda")
    if torch_type not in _ALIGNMENT_BYTES:
        raise UsageError(f"{where}: torch_type must be 'cuda' or 'cpu', not {torch_type!r}")
    flops = _numbers(fields, "flops", where)
    if "float32" not in flops:
        raise UsageError(
            f"{where}: flops needs at least float32, as in flops = {{ float32 = 10 }}"
        )
    efficiency = _numbers(fields, "efficiency", where)
    if unknown := set(efficiency) - set(EFFICIENCY_CLASSES):
        known = ", ".join(EFFICIENCY_CLASSES)
        raise UsageError(f"{where}: efficiency has no {min(unknown)!r}; there are {known}")
    alignment = _number(
        fields.get("alignment_bytes", _ALIGNMENT_BYTES[torch_type]), f"{where}: alignment_bytes"
    )
    link = fields.get("host_link")
    return Device(
        name=name,
        torch_type=torch_type,
        memory_bytes=_memory_bytes(fields, where),
        flops_per_s=tuple((dtype, round(tera * 1e12)) for dtype, tera in flops.items()),
        bandwidth_bytes_per_s=round(_number(fields["bandwidth"], f"{where}: bandwidth") * 1e9),
        launch_ns=round(_number(fields["launch_us"], f"{where}: launch_us") * 1000),
        alignment_bytes=int(alignment),
        host_bandwidth_bytes_per_s=(
            None if link is None else round(_number(link, f"{where}: host_link") * 1e9)
        ),
        overhead_bytes=round(
            _number(fields.get("overhead_mib", 0), f"{where}: overhead_mib", zero=True) * 2**20
        ),
        efficiency=tuple(efficiency.items()),
        source=str(fields.get("source", "")),
    )


def _memory_bytes(fields: Mapping[str, Any], where: str) -> int:
    memory_bytes = round(_number(fields["memory_gib"], f"{where}: memory_gib") * 2**30)
    if "usable_mib" not in fields:
        return memory_bytes
    return min(memory_bytes, round(_number(fields["usable_mib"], f"{where}: usable_mib") * 2**20))


def _check_names(fields: Mapping[str, Any], where: str) -> None:
    for wanted in _REQUIRED:
        if wanted not in fields:
            raise UsageError(f"{where} has no {wanted!r}; it needs {', '.join(_REQUIRED)}")
    known = (*_REQUIRED, *_OPTIONAL)
    for name in fields:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise UsageError(f"{where}: no field is called {name!r}; {hint}")


def _numbers(fields: Mapping[str, Any], name: str, where: str) -> dict[str, float]:
    table = fields.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{where}: {name} must be a table, as in {name} = {{ ... = 1.5 }}")
    return {key: _number(value, f"{where}: {name}.{key}") for key, value in table.items()}


def _number(value: Any, where: str, *, zero: bool = False) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (value > 0 or (zero and value == 0)) or value == float("inf"):
        least = "0 or more" if zero else "more than 0"
        raise UsageError(f"{where} must be a number, {least}, not {value!r}")
    return float(value)
