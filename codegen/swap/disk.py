"""Swapped tensors in one file that has no name: whatever happens, nothing is left of it.

Input and output go past the page cache where the file system allows it, because pages there
would be the very memory that is to be freed. That asks for aligned addresses and lengths, so
that bytes go through a buffer for each direction. The memory of a tensor is free once its write
has ended, and the buffers are all that a transfer takes for itself.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
import threading
import weakref
from pathlib import Path
from queue import SimpleQueue

from memplan.codegen.swap.medium import copy_bytes
from memplan.errors import SwapError
from memplan.planner.extents import Extents, aligned
from memplan.units import format_bytes

_DIRECT: int = getattr(os, "O_DIRECT", 0)
"""Leaves the page cache out, on systems that can."""


class DiskFile:
    """The file, the stretches of it that are in use, and a buffer for each direction.

    Attributes:
        direct: Whether the page cache is left out.
    """

    def __init__(self, folder: Path, chunk_bytes: int) -> None:
        self.folder = folder
        self._descriptor, self.direct = _open_unnamed(folder)
        self._extents, self._lock = Extents(), threading.Lock()
        self._size_bytes = 0
        # Garbage collection may free a stretch at any moment, also while the lock is held here.
        self._unused: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._out, self._in = _Buffer(chunk_bytes), _Buffer(chunk_bytes)
        self.buffer_bytes = self._out.nbytes + self._in.nbytes
        weakref.finalize(self, os.close, self._descriptor)

    def reserve(self, nbytes: int) -> None:
        """Give the file its blocks on the disk now, so that it cannot be full later."""
        with self._lock:
            self._grow(nbytes)

    def take(self, nbytes: int) -> object:
        """Return a stretch of the file."""
        with self._lock:
            while not self._unused.empty():
                self._extents.give_back(*self._unused.get())
            offset = self._extents.take(nbytes)
            try:
                self._grow(self._extents.high_bytes)
            except SwapError:
                self._extents.give_back(offset, nbytes)
                raise
        stretch = _Stretch(offset)
        weakref.finalize(stretch, self._unused.put, (offset, nbytes))
        return stretch

    def write(self, place: object, address: int, nbytes: int) -> None:
        """Copy memory to a stretch, a buffer at a time."""
        assert isinstance(place, _Stretch)
        self._refuse_if_cut_off()
        for done in range(0, nbytes, self._out.nbytes):
            length = min(self._out.nbytes, nbytes - done)
            copy_bytes(self._out.address, address + done, length)
            view = self._out.view[: aligned(length)]
            try:
                written = os.pwrite(self._descriptor, view, place.offset + done)
            except OSError as error:
                raise self._failed("write to", error) from error
            if written < length:
                raise SwapError(f"the swap file in {self.folder} took only a part of a write")
        if not self.direct:
            _leave_page_cache(self._descriptor, place.offset, nbytes)

    def read(self, place: object, address: int, nbytes: int) -> None:
        """Copy a stretch to memory, a buffer at a time."""
        assert isinstance(place, _Stretch)
        self._refuse_if_cut_off()
        for done in range(0, nbytes, self._in.nbytes):
            length = min(self._in.nbytes, nbytes - done)
            view = self._in.view[: aligned(length)]
            try:
                got = os.preadv(self._descriptor, [view], place.offset + done)
            except OSError as error:
                raise self._failed("read from", error) from error
            if got < length:
                raise self._cut_off()
            copy_bytes(address + done, self._in.address, length)

    def _refuse_if_cut_off(self) -> None:
        """A write behind the end would leave a hole, and holes are read as zeros."""
        if os.fstat(self._descriptor).st_size < self._size_bytes:
            raise self._cut_off()

    def _cut_off(self) -> SwapError:
        return SwapError(
            f"the swap file in {self.folder} ends before the bytes that were written to it; "
            "somebody cut it off"
        )

    def _grow(self, nbytes: int) -> None:
        if nbytes <= self._size_bytes:
            return
        try:
            os.posix_fallocate(self._descriptor, self._size_bytes, nbytes - self._size_bytes)
        except OSError as error:
            raise self._failed(f"give {format_bytes(nbytes)} to", error) from error
        self._size_bytes = nbytes

    def _failed(self, what: str, error: OSError) -> SwapError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return SwapError(
                f"cannot {what} the swap file: the disk of {self.folder} is full; choose another "
                "folder with --swap-dir"
            )
        return SwapError(f"cannot {what} the swap file in {self.folder}: {error.strerror}")


class _Stretch:
    """A place in the file, in use for as long as this lives."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


class _Buffer:
    """Memory at an aligned address that has its pages already."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = aligned(nbytes)
        memory = mmap.mmap(-1, self.nbytes)
        memory.write(bytes(self.nbytes))
        self.view = memoryview(memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _open_unnamed(folder: Path) -> tuple[int, bool]:
    """Open a new file in `folder` and take its name away; return it and whether it is direct."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".memplan-swap-", dir=folder)
    except OSError as error:
        raise SwapError(
            f"cannot make a swap file in {folder}: {error.strerror}; choose another folder with "
            "--swap-dir"
        ) from None
    try:
        if not _DIRECT:
            return descriptor, False
        direct = os.open(name, os.O_RDWR | os.O_CLOEXEC | _DIRECT)
    except OSError:
        return descriptor, False
    finally:
        os.unlink(name)
    os.close(descriptor)
    return direct, True


def _leave_page_cache(descriptor: int, offset: int, nbytes: int) -> None:
    """Let the pages of a stretch go, which the kernel does once they are on the disk."""
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, offset, aligned(nbytes), os.POSIX_FADV_DONTNEED)
