"""How fast bytes move here: measured in a fraction of a second, with what moves them later."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy

from memplan.codegen.swap.disk import DiskFile
from memplan.codegen.swap.host import HostMemory
from memplan.codegen.swap.medium import Medium

_TRIAL_BYTES = 16 * 2**20
_TRIALS = 3


def disk_speed(folder: Path, chunk_bytes: int) -> tuple[int, int]:
    """Return bytes a second to and from a swap file in `folder`.

    Raises:
        SwapError: There can be no such file.
    """
    medium = DiskFile(folder, chunk_bytes)
    medium.reserve(_TRIAL_BYTES)
    return _speeds(medium)


def host_speed() -> int:
    """Return bytes a second of a copy from memory to memory, the slower way."""
    return min(_speeds(HostMemory(_TRIAL_BYTES)))


def _speeds(medium: Medium) -> tuple[int, int]:
    # No tensor: it would not be a real one while a graph is traced.
    trial = numpy.ones(_TRIAL_BYTES, dtype=numpy.uint8)
    address, place = trial.ctypes.data, medium.take(_TRIAL_BYTES)
    writes = _median_s(lambda: medium.write(place, address, _TRIAL_BYTES))
    reads = _median_s(lambda: medium.read(place, address, _TRIAL_BYTES))
    return round(_TRIAL_BYTES / writes), round(_TRIAL_BYTES / reads)


def _median_s(run: Callable[[], None]) -> float:
    run()
    times = []
    for _ in range(_TRIALS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
