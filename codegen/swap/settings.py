"""What a user says about swapping, and the tiers that follow."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from memplan.codegen.swap.places import SwapPlaces
from memplan.codegen.swap.speed import disk_speed, host_speed
from memplan.errors import UsageError
from memplan.graph_capture.device import Device
from memplan.graph_capture.devices import find_device
from memplan.graph_capture.graph import Graph
from memplan.planner.extents import aligned
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.tiers import Tier
from memplan.units import parse_bytes, parse_speed

_KINDS = ("none", "host", "disk")
_MOST_CHUNK_BYTES = 4 * 2**20
_CHUNKS_OF_PEAK = 512
"""Two buffers of this share of the peak: 0.4 % of it in all."""
_CPU_COPY_BYTES_PER_S = 10_000_000_000
_DISK_BYTES_PER_S = (2_500_000_000, 3_000_000_000)
_DISK_LATENCY_NS = 100_000
_HOST_LATENCY_NS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapSettings:
    """Whether and where tensors are moved.

    Attributes:
        kind: `none`, `host` or `disk`.
        folder: Where the swap file is; None for the folder of temporary files.
        host_bytes: What host memory may take; None for half of the machine's.
        link_bytes_per_s: Speed of the link, each way; None for what is measured. On a CPU the
            host tier keeps to it, so that a link can be tried out without having it.
    """

    kind: str = "none"
    folder: Path | None = None
    host_bytes: int | None = None
    link_bytes_per_s: int | None = None

    @classmethod
    def read(
        cls,
        kind: str = "none",
        folder: str | Path | None = None,
        host_memory: str | int | None = None,
        link: str | int | None = None,
    ) -> SwapSettings:
        """Read what a user wrote.

        Raises:
            UsageError: The kind is unknown, the folder is none, or a size cannot be read.
        """
        if kind not in _KINDS:
            raise UsageError(f"tensors cannot be moved to {kind!r}; choose one of {_KINDS}")
        if folder is not None and not Path(folder).is_dir():
            raise UsageError(f"{folder} is not a folder; name one with --swap-dir")
        return cls(
            kind=kind,
            folder=None if folder is None else Path(folder),
            host_bytes=None if host_memory is None else parse_bytes(host_memory),
            link_bytes_per_s=None if link is None else parse_speed(link),
        )

    def places(self, device: torch.device) -> SwapPlaces:
        """Return the stores for tensors on `device`, none of them made yet."""
        emulates_link = self.link_bytes_per_s is not None
        return SwapPlaces(self.folder, emulates_link=emulates_link, device=device)

    def tiers(self, graph: Graph, device: Device, *, measured: bool) -> tuple[Tier, ...]:
        """Return the tiers that a plan of `graph` may use: one, or none.

        Args:
            graph: The step; buffers are small beside its peak.
            device: What it runs on.
            measured: Whether speeds that were not given are measured here.
        """
        if self.kind == "host":
            return (self._host(device, measured),)
        if self.kind == "disk":
            peak_bytes = simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes
            return (self._disk(peak_bytes, measured),)
        return ()

    def require_link(self, device: Device) -> None:
        """Refuse to move to the host from a device whose link is not known.

        Raises:
            UsageError: Neither the device nor the settings tell its speed.
        """
        is_known = self.link_bytes_per_s or device.host_bandwidth_bytes_per_s
        if self.kind == "host" and device.torch_type != "cpu" and not is_known:
            raise UsageError(
                f"{device.name} has no host_link, so nothing can be moved to the host: give its "
                "speed, as --link 25GB/s, or add host_link to its device file"
            )

    def _host(self, device: Device, measured: bool) -> Tier:
        self.require_link(device)
        speed = self.link_bytes_per_s
        if speed is None and device.torch_type != "cpu":
            speed = device.host_bandwidth_bytes_per_s
        if speed is None:
            speed = host_speed() if measured else _CPU_COPY_BYTES_PER_S
        return Tier(
            name="host",
            capacity_bytes=self.host_bytes or find_device("cpu").memory_bytes // 2,
            write_bytes_per_s=speed,
            read_bytes_per_s=speed,
            latency_ns=_HOST_LATENCY_NS,
        )

    def _disk(self, peak_bytes: int, measured: bool) -> Tier:
        folder = self.folder or Path(tempfile.gettempdir())
        chunk_bytes = min(_MOST_CHUNK_BYTES, aligned(peak_bytes // _CHUNKS_OF_PEAK))
        write, read = disk_speed(folder, chunk_bytes) if measured else _DISK_BYTES_PER_S
        return Tier(
            name="disk",
            capacity_bytes=shutil.disk_usage(folder).free,
            write_bytes_per_s=self.link_bytes_per_s or write,
            read_bytes_per_s=self.link_bytes_per_s or read,
            latency_ns=_DISK_LATENCY_NS,
            buffer_bytes=2 * chunk_bytes,
        )
