"""Copies of tensors outside the device: written and read by threads, freed with their handle.

The graphs pass copies and reads around as small tensors, because nothing else crosses from a
forward to a backward graph. The storage of such a tensor keeps the copy alive: a step that is
never finished, or is run backward twice, leaves exactly what it still needs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import torch

from memplan.codegen.swap.lane import Lane, Transfer
from memplan.codegen.swap.medium import Medium
from memplan.codegen.swap.transfers import Copy, Read, Store
from memplan.errors import SwapError


class ThreadStore:
    """One tier: where copies lie, a lane out and a lane in."""

    def __init__(self, name: str, medium: Medium) -> None:
        self.name, self.medium = name, medium
        self._out, self._in = Lane(f"{name}-out"), Lane(f"{name}-in")

    @property
    def buffer_bytes(self) -> int:
        """Memory of the device that transfers take for themselves."""
        return self.medium.buffer_bytes

    def reserve(self, nbytes: int) -> None:
        """Make sure that copies with so many bytes in all will find a place."""
        self.medium.reserve(nbytes)

    def write(self, tensor: torch.Tensor) -> ThreadCopy:
        """Start to write the storage of `tensor`, which stays until `Copy.release`."""
        if tensor.device.type != "cpu":
            raise SwapError(
                f"tensors on {tensor.device} cannot be moved to {self.name!r}; from a GPU, use "
                "--swap host"
            )
        copy = ThreadCopy(self, tensor, self.medium.take(tensor.untyped_storage().nbytes()))
        self._out.ask(copy.written)
        return copy

    def read(self, copy: Copy) -> ThreadRead:
        """Take memory for a copy and start to read it."""
        assert isinstance(copy, ThreadCopy)
        read = ThreadRead(copy)
        self._in.ask(read.arrived)
        return read


class ThreadCopy(Copy):
    """A copy that the thread of a lane writes."""

    def __init__(self, store: ThreadStore, tensor: torch.Tensor, place: object) -> None:
        storage = tensor.untyped_storage()
        self.store: ThreadStore = store
        self.place, self.nbytes = place, storage.nbytes()
        self.dtype, self.device = tensor.dtype, tensor.device
        self.layout = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        self.source: torch.Tensor | None = tensor
        medium, address, nbytes = store.medium, storage.data_ptr(), self.nbytes
        self.written = Transfer(lambda: medium.write(place, address, nbytes), self)

    def release(self) -> None:
        """Wait until it is written, then let go of the tensor."""
        self.written.finish()
        self.source = None


class ThreadRead(Read):
    """A copy on its way back, by the thread of a lane."""

    def __init__(self, copy: ThreadCopy) -> None:
        offset, shape, stride = copy.layout
        memory = torch.empty(copy.nbytes, dtype=torch.uint8, device=copy.device)
        empty = torch.empty(0, dtype=copy.dtype, device=copy.device)
        self._tensor: torch.Tensor | None = empty.set_(
            memory.untyped_storage(), offset, shape, stride
        )
        place, medium, nbytes = copy.place, copy.store.medium, copy.nbytes
        address = memory.untyped_storage().data_ptr()
        self.arrived = Transfer(lambda: medium.read(place, address, nbytes), (self, copy))

    def finish(self) -> torch.Tensor:
        """Wait until it is there and hand it over."""
        self.arrived.finish()
        tensor, self._tensor = self._tensor, None
        if tensor is None:
            raise SwapError("a tensor that was read back is waited for twice")
        return tensor


class _Ticket(bytearray):
    """Eight bytes that a tensor's storage can keep alive, and what they stand for."""

    stands_for: Copy | Read


_tickets: weakref.WeakValueDictionary[int, _Ticket] = weakref.WeakValueDictionary()
_numbers = count(1)
_T = TypeVar("_T", Copy, Read)


def as_tensor(value: Copy | Read) -> torch.Tensor:
    """Return a tensor (1,) of int64 whose storage keeps `value` alive."""
    number = next(_numbers)
    ticket = _Ticket(number.to_bytes(8, "little"))
    ticket.stands_for = value
    _tickets[number] = ticket
    return torch.frombuffer(ticket, dtype=torch.int64)


def value_of(handle: torch.Tensor, kind: type[_T]) -> _T:
    """Return what `as_tensor` was given.

    Raises:
        SwapError: The tensor is no such handle.
    """
    ticket = _tickets.get(int(handle))
    value = None if ticket is None else ticket.stands_for
    if not isinstance(value, kind):
        raise SwapError(
            f"a swapped tensor is gone: {handle} stands for no {kind.__name__.lower()}"
        )
    return value


def tickets_held() -> int:
    """How many copies and reads are alive in this process."""
    return len(_tickets)


class Stores(dict[str, Store]):
    """Stores by the name of their tier."""


_current = threading.local()


@contextmanager
def stores_in_use(stores: Mapping[str, Store]) -> Iterator[None]:
    """Let graphs that run on this thread swap to `stores`."""
    before = getattr(_current, "stores", None)
    _current.stores = stores
    try:
        yield
    finally:
        _current.stores = before


_numbered: weakref.WeakValueDictionary[int, Stores] = weakref.WeakValueDictionary()


def numbered(stores: Stores) -> int:
    """Return a number by which `current_store` finds `stores`, as in `disk@7`, on any thread.

    For graphs that others compile and run, with nothing around them.
    """
    _numbered[id(stores)] = stores
    return id(stores)


def current_store(name: str) -> Store:
    """Return the store called `name` of the graph that runs.

    Raises:
        SwapError: It has none.
    """
    name, _, number = name.partition("@")
    here: Mapping[str, Store] | None = getattr(_current, "stores", None)
    stores = (_numbered.get(int(number)) if number else here) or {}
    if name not in stores:
        raise SwapError(f"nothing is set up to move tensors to {name!r}; run the whole module")
    return stores[name]
