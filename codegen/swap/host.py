"""Swapped tensors in ordinary memory, over a link of a given speed if one is to be emulated.

On a machine whose device is its memory this frees nothing: it is there to test and to teach.
"""

from __future__ import annotations

import time

import numpy
import numpy.typing

from memplan.codegen.swap.medium import copy_bytes
from memplan.errors import SwapError
from memplan.planner.tiers import Tier


class HostMemory:
    """Blocks of memory that PyTorch's allocator does not see.

    Attributes:
        link: If it is given, a transfer lasts as long as this tier says.
    """

    buffer_bytes = 0

    def __init__(self, capacity_bytes: int, link: Tier | None = None) -> None:
        self.capacity_bytes, self.link = capacity_bytes, link
        self._ends_s = {"write": 0.0, "read": 0.0}

    def reserve(self, nbytes: int) -> None:
        """Refuse what is above the capacity."""
        if nbytes > self.capacity_bytes:
            raise SwapError(
                f"the plan moves {nbytes:,} bytes to host memory, which may hold "
                f"{self.capacity_bytes:,}; give it more with --host-memory"
            )

    def take(self, nbytes: int) -> object:
        """Return a block of memory."""
        return numpy.empty(nbytes, dtype=numpy.uint8)

    def write(self, place: object, address: int, nbytes: int) -> None:
        """Copy to the block."""
        began_s = time.monotonic()
        copy_bytes(_address(place), address, nbytes)
        if self.link is not None:
            self._pace("write", began_s, self.link.write_ns(nbytes))

    def read(self, place: object, address: int, nbytes: int) -> None:
        """Copy from the block."""
        began_s = time.monotonic()
        copy_bytes(address, _address(place), nbytes)
        if self.link is not None:
            self._pace("read", began_s, self.link.read_ns(nbytes))

    def _pace(self, lane: str, began_s: float, lasts_ns: int) -> None:
        """Sleep until the link would be done; sleeping too long does not add up."""
        late = began_s - self._ends_s[lane] < _JITTER_S
        begin_s = self._ends_s[lane] if late else began_s
        self._ends_s[lane] = begin_s + lasts_ns / 1e9
        left_s = self._ends_s[lane] - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)


_JITTER_S = 0.0005
"""A transfer that begins this soon after the one before would have begun at its end."""


def _address(place: object) -> int:
    assert isinstance(place, numpy.ndarray)
    return place.ctypes.data
