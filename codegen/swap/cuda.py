"""Swapped tensors of a CUDA device in pinned host memory, over two streams of their own.

The order of everything is kept by events, and no one waits on the CPU. Memory of a tensor that
leaves is freed after the compute stream was told to wait for its copy, so that the allocator may
use it again at once; memory of one that comes back belongs to the compute stream, and the copy
waits for what ran there before. So no stream has to be recorded with the allocator, which would
delay reuse until it asks for events, and let the peak grow beyond the plan.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import torch

from memplan.codegen.swap.transfers import Copy, Read
from memplan.errors import SwapError

Finalizer: TypeAlias = "weakref.finalize[..., Any]"
_PAGE_BYTES = mmap.PAGESIZE


class Streams(Protocol):
    """What is asked of the device; streams and events are whatever it makes of them."""

    def compute(self) -> Any:
        """Return the stream that the graph runs on."""
        ...

    def new(self) -> Any:
        """Return a stream for transfers."""
        ...

    def record(self, stream: Any) -> Any:
        """Return an event: all that was asked of `stream` so far is done."""
        ...

    def wait(self, stream: Any, event: Any) -> None:
        """Let what is asked of `stream` from now on begin after `event`."""
        ...

    def finish(self, event: Any) -> None:
        """Wait, on the CPU, until `event` has come."""
        ...

    def copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> None:
        """Ask `stream` for a copy of bytes; return at once."""
        ...

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return (nbytes,) of host memory that the device can copy to and from by itself."""
        ...


class CudaStreams:
    """The streams of one CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def compute(self) -> torch.cuda.Stream:
        """Return the current stream of this thread."""
        return torch.cuda.current_stream(self.device)

    def new(self) -> torch.cuda.Stream:
        """Return a stream of its own."""
        return torch.cuda.Stream(self.device)

    def record(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        """Return an event of `stream`."""
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def wait(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        """Let `stream` wait on the device."""
        stream.wait_event(event)

    def finish(self, event: torch.cuda.Event) -> None:
        """Wait on the CPU."""
        event.synchronize()

    def copy(self, stream: torch.cuda.Stream, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy on `stream`."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)

    def pin(self, nbytes: int) -> torch.Tensor:
        """Register pages of exactly this size; torch's own pinned memory is a power of two."""
        memory = torch.empty(nbytes, dtype=torch.uint8)
        runtime, address = torch.cuda.cudart(), memory.data_ptr()
        if int(runtime.cudaHostRegister(address, nbytes, 0)):
            raise SwapError(
                f"the system refuses to pin {nbytes:,} bytes of host memory; give less with "
                "--host-memory"
            )
        _when_gone(memory, runtime.cudaHostUnregister, address)
        return memory


class PinnedPool:
    """Blocks of pinned memory of exact sizes, which are kept: to pin takes milliseconds."""

    def __init__(self, streams: Streams, capacity_bytes: int) -> None:
        self._streams, self.capacity_bytes = streams, capacity_bytes
        self.pinned_bytes = 0
        self._free: dict[int, list[tuple[torch.Tensor, list[Any]]]] = {}
        self._lock = threading.RLock()
        """The garbage collector may give a block back at any moment, also while one is taken."""

    def take(self, nbytes: int) -> tuple[torch.Tensor, list[Any]]:
        """Return a block, and the events after which it may be written to."""
        whole_bytes = max(1, -(-nbytes // _PAGE_BYTES)) * _PAGE_BYTES
        with self._lock:
            if waiting := self._free.get(whole_bytes):
                return waiting.pop()
            if self.pinned_bytes + whole_bytes > self.capacity_bytes:
                self._drop_unused()
            if self.pinned_bytes + whole_bytes > self.capacity_bytes:
                raise SwapError(
                    f"host memory may hold {self.capacity_bytes:,} bytes, which is not enough; "
                    "give it more with --host-memory"
                )
            block = self._streams.pin(whole_bytes)
            self.pinned_bytes += whole_bytes
        return block, []

    def give_back(self, block: torch.Tensor, events: list[Any]) -> None:
        """Take a block back; it may be written to after `events`."""
        with self._lock:
            self._free.setdefault(block.numel(), []).append((block, events))

    def _drop_unused(self) -> None:
        """Blocks of other sizes that nobody uses make room, once no copy touches them."""
        for blocks in self._free.values():
            for block, events in blocks:
                for event in events:
                    self._streams.finish(event)
                self.pinned_bytes -= block.numel()
        self._free.clear()


class CudaStore:
    """One tier in host memory.

    Attributes:
        pool: Where copies lie.
    """

    buffer_bytes = 0

    def __init__(self, streams: Streams, capacity_bytes: int) -> None:
        self._streams = streams
        self.pool = PinnedPool(streams, capacity_bytes)
        self._out, self._in = streams.new(), streams.new()

    def reserve(self, nbytes: int) -> None:
        """Refuse what is above the capacity."""
        if nbytes > self.pool.capacity_bytes:
            raise SwapError(
                f"the plan moves {nbytes:,} bytes to host memory, which may hold "
                f"{self.pool.capacity_bytes:,}; give it more with --host-memory"
            )

    def write(self, tensor: torch.Tensor) -> CudaCopy:
        """Start to write, after what was asked of the compute stream before."""
        streams, nbytes = self._streams, tensor.untyped_storage().nbytes()
        block, events = self.pool.take(nbytes)
        compute = streams.compute()
        for event in (streams.record(compute), *events):
            streams.wait(self._out, event)
        streams.copy(self._out, block[:nbytes], _bytes_of(tensor))
        return CudaCopy(self, tensor, block, streams.record(self._out), compute)

    def read(self, copy: Copy) -> CudaRead:
        """Take memory on the compute stream and start to read, after what ran there before."""
        assert isinstance(copy, CudaCopy)
        streams = self._streams
        memory = torch.empty(copy.nbytes, dtype=torch.uint8, device=copy.device)
        compute = streams.compute()
        for event in (streams.record(compute), copy.written):
            streams.wait(self._in, event)
        streams.copy(self._in, memory, copy.block[: copy.nbytes])
        arrived = streams.record(self._in)
        copy.touched.append(arrived)
        return CudaRead(streams, copy, memory, arrived, compute)

    def let_wait(self, stream: Any, event: Any) -> None:
        """Let a stream wait for an event."""
        self._streams.wait(stream, event)


class CudaCopy(Copy):
    """A copy in pinned memory; the block goes back to the pool with it."""

    def __init__(
        self,
        store: CudaStore,
        tensor: torch.Tensor,
        block: torch.Tensor,
        written: Any,
        compute: Any,
    ) -> None:
        self.store: CudaStore = store
        self.block, self.written = block, written
        self.nbytes = tensor.untyped_storage().nbytes()
        self.dtype, self.device = tensor.dtype, tensor.device
        self.layout = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        self.source: torch.Tensor | None = tensor
        self.touched = [written]
        """What last reads or writes the block."""
        _when_gone(self, store.pool.give_back, block, self.touched)
        # A step that is given up frees the tensor without `release`.
        self._given_up = _when_gone(self, store.let_wait, compute, written)

    def release(self) -> None:
        """Let the compute stream wait for the copy, then let go of the tensor."""
        self.store.let_wait(self.store._streams.compute(), self.written)
        self._given_up.detach()
        self.source = None


class CudaRead(Read):
    """A copy on its way back, in memory that belongs to the compute stream."""

    def __init__(
        self, streams: Streams, copy: CudaCopy, memory: torch.Tensor, arrived: Any, compute: Any
    ) -> None:
        self._streams, self._arrived = streams, arrived
        self._copy: CudaCopy | None = copy
        offset, shape, stride = copy.layout
        empty = torch.empty(0, dtype=copy.dtype, device=copy.device)
        self._tensor: torch.Tensor | None = empty.set_(
            memory.untyped_storage(), offset, shape, stride
        )
        # Its memory must not be used again while the copy into it runs.
        self._given_up = _when_gone(self, streams.wait, compute, arrived)

    def finish(self) -> torch.Tensor:
        """Let the compute stream wait for the read, and hand the tensor over."""
        self._streams.wait(self._streams.compute(), self._arrived)
        self._given_up.detach()
        tensor, self._tensor, self._copy = self._tensor, None, None
        if tensor is None:
            raise SwapError("a tensor that was read back is waited for twice")
        return tensor


def _when_gone(owner: object, call: Callable[..., object], *args: object) -> Finalizer:
    """Call once `owner` is gone, but not at the end of the process, when the device may be."""
    finalizer: Finalizer = weakref.finalize(owner, call, *args)
    finalizer.atexit = False
    return finalizer


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return (bytes,) the whole storage of a tensor."""
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    storage = tensor.untyped_storage()
    return empty.set_(storage, 0, (storage.nbytes(),), (1,))
