"""What a piece of code takes from PyTorch's CPU allocator, event by event, exact to the byte.

Resident-set sizes count pages that malloc keeps, and sums over tensors miss what a kernel takes
for itself. The allocator reports every block to the profiler that is active on the thread. Of
PyTorch's two profilers this reads the older: it starts in microseconds, not in seconds, writes
nothing to stderr, and keeps the events in their order. Both see the same events (a test compares
them).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from torch._C._autograd import (
    ProfilerEvent,
    _disable_profiler_legacy,
    _enable_profiler_legacy,
    _profiler_enabled,
)
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

from memplan.errors import ProfileError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Allocations:
    """The allocator's events while some code ran.

    Attributes:
        deltas_bytes: (events,) bytes taken, or given back where negative, in order.
    """

    deltas_bytes: tuple[int, ...]

    @property
    def peak_bytes(self) -> int:
        """The most that was held at any time above what was held at the start."""
        return max(accumulate(self.deltas_bytes, initial=0))

    @property
    def held_bytes(self) -> int:
        """What is still held at the end, above what was held at the start."""
        return sum(self.deltas_bytes)


def record_allocations(run: Callable[[], T]) -> tuple[T, Allocations]:
    """Call `run` and return its result with the allocator's events on the CPU.

    Events on this thread and on the threads that PyTorch itself hands work to are seen; those of
    Python threads that `run` starts are not. The allocator knows the size of a block only if it
    was taken during a recording, this one or an earlier one: where `run` gives back an older
    block, nothing is counted and PyTorch writes a warning to stderr.

    Raises:
        ProfileError: A torch profiler is active on this thread already.
    """
    if _profiler_enabled():
        raise ProfileError(
            "memory cannot be measured while a torch profiler is active on this thread; "
            "plan and measure outside of it"
        )
    _enable_profiler_legacy(_memory_only())
    try:
        result = run()
    finally:
        threads = _disable_profiler_legacy()
    return result, Allocations(_in_order(threads))


def _memory_only() -> ProfilerConfig:
    return ProfilerConfig(
        ProfilerState.CPU,
        report_input_shapes=False,
        profile_memory=True,
        with_stack=False,
        with_flops=False,
        with_modules=False,
        experimental_config=_ExperimentalConfig(),
    )


def _in_order(threads: list[list[ProfilerEvent]]) -> tuple[int, ...]:
    """Merge the events of all threads by time; those of one thread keep their order."""
    start = next(e for events in threads for e in events if e.name() == "__start_profile")
    moved = [[e for e in events if str(e.kind()) == "memory_alloc"] for events in threads]
    merged = heapq.merge(*moved, key=start.cpu_elapsed_us)
    return tuple(event.cpu_memory_usage() for event in merged)
