"""What the bytes of swapped tensors lie in."""

from __future__ import annotations

import ctypes
from typing import Protocol


class Medium(Protocol):
    """Places for bytes. `write` and `read` run on one thread each, the rest on any.

    All of them raise `SwapError` where they fail.
    """

    buffer_bytes: int
    """Memory of the device that transfers take for themselves."""

    def reserve(self, nbytes: int) -> None:
        """Make sure that copies with so many bytes in all will find a place."""
        ...

    def take(self, nbytes: int) -> object:
        """Return a place for `nbytes`, which is free again once nothing refers to it."""
        ...

    def write(self, place: object, address: int, nbytes: int) -> None:
        """Copy `nbytes` of memory at `address` to `place`."""
        ...

    def read(self, place: object, address: int, nbytes: int) -> None:
        """Copy `nbytes` from `place` to the memory at `address`."""
        ...


def copy_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy memory between two addresses; other threads run meanwhile."""
    ctypes.memmove(target, source, nbytes)
