"""Devices by name: the table in `devices.toml`, and `cpu`, the machine that runs this."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from memplan.errors import UnknownDevice
from memplan.graph_capture.device import Device

# CUDA's and HIP's caching allocators round every block up to this.
_ACCELERATOR_ALIGNMENT_BYTES = 512

# Single-precision operations a cycle and core: two fused multiply-adds on the widest vectors.
_CPU_FLOPS_PER_CYCLE = {"avx512f": 64, "avx2": 32, "asimd": 16}
_CPU_LEAST_FLOPS_PER_CYCLE = 8
_CPU_CLOCK_HZ = 2_500_000_000
_CPU_CORE_BANDWIDTH_BYTES_PER_S = 8_000_000_000
_CPU_LAUNCH_NS = 2_000


def find_device(name: str = "cpu") -> Device:
    """Return the device called `name`; upper case and spaces do not matter.

    Raises:
        UnknownDevice: No device has this name; the text lists those there are.
    """
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    if wanted == "cpu":
        return _this_cpu()
    table = _accelerators()
    if wanted not in table:
        known = ", ".join(device_names())
        raise UnknownDevice(f"no device is called {name!r}; choose one of {known}")
    return table[wanted]


def device_names() -> tuple[str, ...]:
    """Return the names that `find_device` knows, `cpu` first, the others by alphabet."""
    return ("cpu", *sorted(_accelerators()))


@cache
def _accelerators() -> dict[str, Device]:
    text = resources.files(__package__).joinpath("devices.toml").read_text(encoding="utf-8")
    return {name: _read(name, fields) for name, fields in tomllib.loads(text).items()}


def _read(name: str, fields: dict[str, Any]) -> Device:
    return Device(
        name=name,
        torch_type="cuda",
        memory_bytes=fields["memory_gib"] * 2**30,
        flops_per_s=tuple((dtype, round(tera * 1e12)) for dtype, tera in fields["flops"].items()),
        bandwidth_bytes_per_s=fields["bandwidth"] * 10**9,
        launch_ns=round(fields["launch_us"] * 1000),
        alignment_bytes=_ACCELERATOR_ALIGNMENT_BYTES,
    )


@cache
def _this_cpu() -> Device:
    """Describe this machine from what the kernel says; nothing is measured."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
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
    )


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
