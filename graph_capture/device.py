"""What a machine can hold and how fast it is; no torch here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device, as the cost model and the accounting see it.

    Attributes:
        torch_type: `cpu` or `cuda`: where its tensors live.
        memory_bytes: What the device has; a budget above it is reported.
        flops_per_s: Peak floating point operations a second by dtype name (`float32`).
        bandwidth_bytes_per_s: Of the device's own memory.
        launch_ns: Time of an operation that does nothing.
        alignment_bytes: Every allocation is rounded up to a multiple of this.
        host_bandwidth_bytes_per_s: Of the link to the host, one way; None where there is none.
        overhead_bytes: What the framework takes besides tensors: the driver's context, loaded
            kernels, the interpreter.
        efficiency: Share of a peak that operations attain, by class: `matmul`, `convolution`,
            `attention`, `pointwise`, `bandwidth`. Classes left out get the model's own figures.
        source: Where the figures come from.
    """

    name: str
    torch_type: str
    memory_bytes: int
    flops_per_s: tuple[tuple[str, int], ...]
    bandwidth_bytes_per_s: int
    launch_ns: int
    alignment_bytes: int = 1
    host_bandwidth_bytes_per_s: int | None = None
    overhead_bytes: int = 0
    efficiency: tuple[tuple[str, float], ...] = ()
    source: str = ""
