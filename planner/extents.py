"""Offsets in one block of memory or file: first fit, neighbours joined again when freed."""

from __future__ import annotations

from collections import Counter

from memplan.graph_capture.graph import Graph
from memplan.planner.schedule import Prefetch, Schedule, SwapOut, Wait

ALIGNMENT_BYTES = 4096
"""What direct input and output asks of offsets and lengths, at most, on the disks of today."""


def aligned(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of `ALIGNMENT_BYTES`, and no less than one."""
    return max(1, -(-nbytes // ALIGNMENT_BYTES)) * ALIGNMENT_BYTES


class Extents:
    """Stretches of bytes in use.

    Attributes:
        high_bytes: The end of the last stretch that was ever in use.
    """

    def __init__(self) -> None:
        self.high_bytes = 0
        self._free: list[tuple[int, int]] = []
        """(offset, bytes) below `high_bytes`, in order, no two of them touching."""

    def take(self, nbytes: int) -> int:
        """Return the offset of a free stretch of `nbytes`, rounded up, and take it."""
        need_bytes = aligned(nbytes)
        for at, (offset, free_bytes) in enumerate(self._free):
            if free_bytes >= need_bytes:
                rest = (offset + need_bytes, free_bytes - need_bytes)
                self._free[at : at + 1] = [rest] if rest[1] else []
                return offset
        offset = self.high_bytes
        if self._free and sum(self._free[-1]) == self.high_bytes:
            offset = self._free.pop()[0]
        self.high_bytes = offset + need_bytes
        return offset

    def give_back(self, offset: int, nbytes: int) -> None:
        """Free a stretch that `take` returned for as many bytes."""
        self._free.append((offset, aligned(nbytes)))
        self._free.sort()
        joined: list[tuple[int, int]] = []
        for begin, length in self._free:
            if joined and sum(joined[-1]) == begin:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((begin, length))
        self._free = joined


def planned_bytes(graph: Graph, schedule: Schedule, tier: int) -> int:
    """Return the size of the block that the copies on `tier` take when `schedule` runs.

    A copy is there from its `SwapOut` until the `Wait` of its last `Prefetch`, or to the end.
    """
    extents = Extents()
    reads_left = Counter(step.tensor for step in schedule if isinstance(step, Prefetch))
    offsets: dict[int, int] = {}
    reading: set[int] = set()
    for step in schedule:
        if isinstance(step, SwapOut) and step.tier == tier:
            offsets[step.tensor] = extents.take(graph.tensors[step.tensor].nbytes)
        elif isinstance(step, Prefetch):
            reads_left[step.tensor] -= 1
            reading.add(step.tensor)
        elif isinstance(step, Wait) and step.tensor in reading:
            reading.remove(step.tensor)
            if not reads_left[step.tensor] and step.tensor in offsets:
                nbytes = graph.tensors[step.tensor].nbytes
                extents.give_back(offsets.pop(step.tensor), nbytes)
    return extents.high_bytes
