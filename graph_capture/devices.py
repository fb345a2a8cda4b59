"""Devices by name: the table in `devices.toml`, users' own, and `cpu`, the machine at hand."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path

import platformdirs

from memplan.errors import UnknownDevice, UsageError
from memplan.graph_capture.device import Device
from memplan.graph_capture.device_files import parse_devices, read_devices

# Single-precision operations a cycle and core: two fused multiply-adds on the widest vectors.
_CPU_FLOPS_PER_CYCLE = {"avx512f": 64, "avx2": 32, "asimd": 16}
_CPU_LEAST_FLOPS_PER_CYCLE = 8
_CPU_CLOCK_HZ = 2_500_000_000
_CPU_CORE_BANDWIDTH_BYTES_PER_S = 16_000_000_000
_CPU_LAUNCH_NS = 2_000
# Resident memory of Python with torch's CPU build imported; measured with torch 2.13.
_CPU_OVERHEAD_BYTES = 220 * 2**20

DEVICES_VARIABLE = "MEMPLAN_DEVICES"


def find_device(name: str | Device = "cpu") -> Device:
    """Return a device.

    Args:
        name: The device itself, a name of `memplan devices` (upper case and spaces do not
            matter), or the path of
            a device file, with `:name` after it where it holds several.

    Raises:
        UnknownDevice: No device has this name; the text lists the nearest, or all.
        UsageError: A device file cannot be used.
    """
    if isinstance(name, Device):
        return name
    if ".toml" in name:
        return _from_file(name)
    wanted = _plain(name)
    table = known_devices()
    if wanted not in table:
        part = [known for known in table if wanted and (wanted in known or known in wanted)]
        close = part or get_close_matches(wanted, table, n=3)
        choice = "did you mean" if close else "choose one of"
        end = "?" if close else ", or name a device file such as my.toml"
        raise UnknownDevice(
            f"no device is called {name!r}; {choice} {', '.join(close or table)}{end}"
        )
    return table[wanted]


def device_names() -> tuple[str, ...]:
    """Return the names that come with memplan, `cpu` first, the others by alphabet."""
    return ("cpu", *sorted(_accelerators()))


def known_devices() -> dict[str, Device]:
    """Return all devices by name: `cpu`, the table, and what the user's own file adds.

    Raises:
        UsageError: The user's file cannot be used.
    """
    built_in = {"cpu": _this_cpu(_threads())} | {
        name: _accelerators()[name] for name in device_names()[1:]
    }
    own = users_file()
    return built_in | (_read_own(own) if own.exists() else {})


def users_file() -> Path:
    """Return where the user's own devices are: `$MEMPLAN_DEVICES`, or in the settings folder."""
    if named := os.environ.get(DEVICES_VARIABLE):
        return Path(named)
    return platformdirs.user_config_path("memplan") / "devices.toml"


def _read_own(path: Path) -> dict[str, Device]:
    return {_plain(name): device for name, device in read_devices(path).items()}


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "-").replace("_", "-")


def _from_file(name: str) -> Device:
    before, _, after = name.rpartition(".toml")
    path, wanted = Path(f"{before}.toml"), after.removeprefix(":")
    devices = read_devices(path)
    if not wanted and len(devices) == 1:
        return next(iter(devices.values()))
    if wanted in devices:
        return devices[wanted]
    if not devices:
        raise UsageError(f"{path} describes no device; write a table such as [my-gpu]")
    found = ", ".join(f"{path}:{device}" for device in devices)
    raise UnknownDevice(f"{path} has {len(devices)} devices; name one: {found}")


@cache
def _accelerators() -> dict[str, Device]:
    text = resources.files(__package__).joinpath("devices.toml").read_text(encoding="utf-8")
    return parse_devices(text, "devices.toml")


@cache
def _this_cpu(cores: int) -> Device:
    """Describe `cores` of this machine from what the kernel says; nothing is measured."""
    float32 = cores * _CPU_CLOCK_HZ * _flops_per_cycle()
    # Half-precision kernels of a CPU convert to float32 and back, unless it has units of its own.
    flops = (("float64", float32 // 2), ("float32", float32), ("bfloat16", float32))
    return Device(
        name="cpu",
        torch_type="cpu",
        memory_bytes=_memory_bytes(),
        flops_per_s=(*flops, ("float16", float32)),
        bandwidth_bytes_per_s=cores * _CPU_CORE_BANDWIDTH_BYTES_PER_S,
        launch_ns=_CPU_LAUNCH_NS,
        overhead_bytes=_CPU_OVERHEAD_BYTES,
        source="this machine, from its number of cores and what they can do; nothing is measured",
    )


def _threads() -> int:
    """Return how many cores torch's kernels use; torch itself is asked only if it is there."""
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores or 1, int(limit)) if limit.isdecimal() and int(limit) else cores or 1


def _flops_per_cycle() -> int:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return _CPU_LEAST_FLOPS_PER_CYCLE
    flags = set(text.split())
    known = (flops for flag, flops in _CPU_FLOPS_PER_CYCLE.items() if flag in flags)
    return next(known, _CPU_LEAST_FLOPS_PER_CYCLE)


def _memory_bytes() -> int:
    """Return the memory of this machine, or of the container if it may use less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total
