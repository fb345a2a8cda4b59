"""Measures the machine at hand: what it attains, not what its vendor prints.

The figures are rates of torch's own kernels, so a calibrated device has efficiencies of 1 where
a figure is attained by definition (`matmul`, `bandwidth`) and measured shares elsewhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

from memplan.errors import UsageError
from memplan.graph_capture.device import Device
from memplan.graph_capture.devices import find_device

Progress = Callable[[str, int, int], None]

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_SIZES = {"cpu": (256, 512, 1024), "cuda": (1024, 2048, 4096, 8192)}
_COPY_BYTES = {"cpu": 2**27, "cuda": 2**30}
_LINK_BYTES = 2**27
_ENOUGH_S = 0.2
_LEAST_RUNS = 3
_SLOW_S = 0.2
_LAUNCHES = 500


def calibrate(name: str, torch_type: str = "cpu", progress: Progress | None = None) -> Device:
    """Return the machine at hand as a device called `name`.

    It takes seconds; a busy machine measures too slow.

    Args:
        name: What to call it.
        torch_type: `cpu`, or `cuda` for the current GPU.
        progress: Told what is being measured.

    Raises:
        UsageError: There is no such device here.
    """
    if torch_type == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no GPU here; calibrate --on cpu, or where the GPU is")
    bench = _Bench(torch_type)
    steps: list[tuple[str, Callable[[], object]]] = [
        ("copies", bench.bandwidth),
        ("launches", bench.launch),
        *((f"products in {str(d)[6:]}", lambda d=d: bench.product(d)) for d in _DTYPES),
        ("convolutions", bench.convolution),
        ("attention", bench.attention),
        ("pointwise operations", bench.pointwise),
    ]
    with torch.no_grad():
        for done, (what, measure) in enumerate(steps):
            if progress is not None:
                progress(f"measuring {what}", done, len(steps))
            measure()
        return bench.device(name)


class _Bench:
    """Runs the kernels and keeps what they attained."""

    def __init__(self, torch_type: str) -> None:
        self.torch_type = torch_type
        self.flops_per_s: dict[str, int] = {}
        self.efficiency: dict[str, float] = {"matmul": 1.0, "bandwidth": 1.0}
        self.bandwidth_bytes_per_s = 0
        self.host_bandwidth_bytes_per_s: int | None = None
        self.launch_ns = 0

    def bandwidth(self) -> None:
        source = self._filled(_COPY_BYTES[self.torch_type] // 4)
        target = torch.empty_like(source)
        seconds = self._seconds(lambda: target.copy_(source))
        self.bandwidth_bytes_per_s = round(2 * 4 * source.numel() / seconds)
        if self.torch_type == "cuda":
            pinned = torch.empty(_LINK_BYTES // 4, pin_memory=True)
            there = torch.empty_like(pinned, device="cuda")
            seconds = self._seconds(lambda: there.copy_(pinned, non_blocking=True))
            self.host_bandwidth_bytes_per_s = round(_LINK_BYTES / seconds)

    def launch(self) -> None:
        one = self._filled(1)

        def many() -> None:
            for _ in range(_LAUNCHES):
                one.add_(1.0)

        self.launch_ns = max(1, round(self._seconds(many) / _LAUNCHES * 1e9))

    def product(self, dtype: torch.dtype) -> None:
        """Keep the best rate over sizes; a dtype that cannot be multiplied is left out."""
        best = 0.0
        for size in _SIZES[self.torch_type]:
            left = self._filled(size * size).view(size, size).to(dtype)
            try:
                seconds = self._seconds(lambda left=left: left @ left)  # type: ignore[misc]
            except RuntimeError:
                return
            best = max(best, 2 * size**3 / seconds)
            if seconds > _SLOW_S:  # an emulated dtype; larger sizes take minutes
                break
        self.flops_per_s[str(dtype).removeprefix("torch.")] = round(best)

    def convolution(self) -> None:
        images = self._filled(8 * 64 * 56 * 56).view(8, 64, 56, 56)
        weight = self._filled(64 * 64 * 9).view(64, 64, 3, 3)
        flops = 2 * images.numel() * 64 * 9
        self._attain("convolution", flops, lambda: functional.conv2d(images, weight, padding=1))

    def attention(self) -> None:
        query = self._filled(4 * 8 * 512 * 64).view(4, 8, 512, 64)
        flops = 4 * 32 * 512 * 512 * 64
        self._attain(
            "attention",
            flops,
            lambda: functional.scaled_dot_product_attention(query, query, query),
        )

    def pointwise(self) -> None:
        values = self._filled(2**22)
        # The model counts 40 operations for one element of a GELU.
        self._attain("pointwise", 40 * values.numel(), lambda: functional.gelu(values))

    def device(self, name: str) -> Device:
        known = find_device("cpu")
        on_gpu = self.torch_type == "cuda"
        memory_bytes = torch.cuda.mem_get_info()[1] if on_gpu else known.memory_bytes
        return Device(
            name=name,
            torch_type=self.torch_type,
            memory_bytes=memory_bytes,
            flops_per_s=tuple(self.flops_per_s.items()),
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            launch_ns=self.launch_ns,
            alignment_bytes=512 if on_gpu else 1,
            host_bandwidth_bytes_per_s=self.host_bandwidth_bytes_per_s,
            overhead_bytes=_gpu_overhead_bytes() if on_gpu else known.overhead_bytes,
            efficiency=tuple(self.efficiency.items()),
            source=f"memplan calibrate, {self._machine()}, torch {torch.__version__}, "
            f"{torch.get_num_threads()} threads",
        )

    def _machine(self) -> str:
        return torch.cuda.get_device_name() if self.torch_type == "cuda" else cpu_model()

    def _attain(self, name: str, flops: int, run: Callable[[], object]) -> None:
        share = flops / self._seconds(run) / self.flops_per_s["float32"]
        self.efficiency[name] = share

    def _filled(self, count: int) -> torch.Tensor:
        return torch.full((count,), 0.5, device=self.torch_type)

    def _seconds(self, run: Callable[[], object]) -> float:
        """Return the shortest time of `run` after one to warm up: others disturb, none helps."""
        self._wait(run)
        times_s: list[float] = []
        while len(times_s) < _LEAST_RUNS or sum(times_s) < _ENOUGH_S:
            start_s = time.perf_counter()
            self._wait(run)
            times_s.append(time.perf_counter() - start_s)
        return min(times_s)

    def _wait(self, run: Callable[[], object]) -> None:
        run()
        if self.torch_type == "cuda":
            torch.cuda.synchronize()


def _gpu_overhead_bytes() -> int:
    """Return what is taken on the GPU beside torch's allocator, other programs included."""
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return max(0, total_bytes - free_bytes - torch.cuda.memory_reserved())


def cpu_model() -> str:
    """Return what the kernel calls this processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return os.uname().machine
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, os.uname().machine)
