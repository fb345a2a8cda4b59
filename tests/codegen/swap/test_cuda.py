"""The order of streams and events: emulated streams do what they may do, as late as they may.

A stream here is a queue, and any queue may go on at any moment unless it waits for an event. What
is not kept in order by an event happens in every order for some seed, and gives other bits.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

from memplan.codegen.swap.cuda import CudaStore, CudaStreams
from memplan.codegen.swap.places import SwapPlaces
from memplan.errors import SwapError

SEEDS = range(20)


@dataclass
class Event:
    """Whether its stream came so far."""

    done: bool = False


@dataclass
class Stream:
    """What was asked and not done yet: a call, or an event to wait for."""

    name: str
    queue: list[Callable[[], object] | Event] = field(default_factory=list)


class Emulated:
    """Streams on the CPU; on the one named `lost`, waits are left out."""

    def __init__(self, seed: int, lost: str = "") -> None:
        self.rng, self.lost = random.Random(seed), lost
        self.names = iter(("out", "in"))
        self.compute_stream = Stream("compute")
        self.streams = [self.compute_stream]
        self.pinned: list[int] = []

    def compute(self) -> Stream:
        return self.compute_stream

    def new(self) -> Stream:
        self.streams.append(Stream(next(self.names)))
        return self.streams[-1]

    def record(self, stream: Stream) -> Event:
        event = Event()
        stream.queue.append(lambda: setattr(event, "done", True))
        self.go_on()
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        if stream.name != self.lost:
            stream.queue.append(event)

    def finish(self, event: Event) -> None:
        while not event.done:
            self.step()

    def copy(self, stream: Stream, target: torch.Tensor, source: torch.Tensor) -> None:
        self.run(stream, lambda: target.copy_(source))

    def pin(self, nbytes: int) -> torch.Tensor:
        self.pinned.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    def run(self, stream: Stream, call: Callable[[], Any]) -> None:
        stream.queue.append(call)
        self.go_on()

    def go_on(self) -> None:
        for _ in range(self.rng.randrange(4)):
            self.step()

    def step(self) -> bool:
        """Let one queue go on, if any can."""
        ready = [s for s in self.streams if s.queue and not _waits(s)]
        if not ready:
            assert not any(s.queue for s in self.streams), "they wait for each other"
            return False
        first = self.rng.choice(ready).queue.pop(0)
        if not isinstance(first, Event):
            first()
        return True

    def run_out(self) -> None:
        while self.step():
            pass


def _waits(stream: Stream) -> bool:
    return isinstance(stream.queue[0], Event) and not stream.queue[0].done


def train(streams: Emulated, steps: int = 3) -> list[bool]:
    """Move a tensor out and back in each step; return whether the bits were those of before."""
    store = CudaStore(streams, 10**6)
    compute = streams.compute()
    right: list[bool] = []
    for step in range(steps):
        x = torch.zeros(64).view(8, 8).t()
        expected = torch.full((8, 8), float(step + 1))
        streams.run(compute, partial(x.fill_, step + 1))
        copy = store.write(x)
        copy.release()
        # The allocator gives the memory to the next tensor at once.
        streams.run(compute, partial(x.fill_, -1.0))
        read = store.read(copy)
        y = read.finish()
        assert y.stride() == x.stride()
        streams.run(compute, partial(_note, right, y, expected))
        del copy, read
    streams.run_out()
    return right


def _note(right: list[bool], found: torch.Tensor, expected: torch.Tensor) -> None:
    right.append(torch.equal(found, expected))


@pytest.mark.parametrize("seed", SEEDS)
def test_bits_are_the_same_whatever_the_streams_do(seed: int) -> None:
    assert train(Emulated(seed)) == [True] * 3


@pytest.mark.parametrize("lost", ["compute", "out", "in"])
def test_without_the_waits_of_any_stream_they_are_not(lost: str) -> None:
    assert not all(all(train(Emulated(seed, lost))) for seed in SEEDS)


def test_memory_is_pinned_once_and_in_its_size() -> None:
    streams = Emulated(0)
    train(streams, steps=10)
    assert streams.pinned == [4096]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_is_used_again_only_after_its_reads(seed: int) -> None:
    """The second tensor takes the block of the first while that is still to be read."""
    streams = Emulated(seed)
    store = CudaStore(streams, 4096)
    one, other = torch.ones(16), torch.full((16,), 2.0)
    read = store.read(store.write(one))
    gc.collect()
    found = read.finish()
    streams.run(streams.compute(), lambda: None)
    del read
    store.write(other).release()
    streams.run_out()
    assert torch.equal(found, torch.ones(16))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("of", ["copy", "read"])
def test_a_step_that_is_given_up_leaves_no_transfer_in_memory_of_others(
    of: str, seed: int
) -> None:
    streams = Emulated(seed)
    store = CudaStore(streams, 10**6)
    x = torch.ones(16)
    copy = store.write(x)
    touched = copy.written
    if of == "read":
        copy.release()
        read = store.read(copy)
        touched = copy.touched[-1]
        del read
    del copy
    gc.collect()
    seen: list[bool] = []
    streams.run(streams.compute(), lambda: seen.append(touched.done))
    streams.run_out()
    assert seen == [True]


def test_unused_blocks_of_other_sizes_make_room() -> None:
    streams = Emulated(1)
    store = CudaStore(streams, 8192)
    store.write(torch.ones(2048)).release()
    gc.collect()
    store.write(torch.ones(16)).release()
    assert store.pool.pinned_bytes == 4096
    kept = [store.write(torch.ones(16)) for _ in range(2)]
    with pytest.raises(SwapError, match="--host-memory"):
        store.write(torch.ones(16))
    assert len(kept) == 2


def test_more_than_the_host_may_hold_is_refused_before_the_first_step() -> None:
    with pytest.raises(SwapError, match="--host-memory"):
        CudaStore(Emulated(0), 4096).reserve(4097)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    store = CudaStore(CudaStreams(device), 2**30)
    places = SwapPlaces(device=device)
    assert places.device == device
    for step in range(20):
        x = torch.full((2**22,), float(step), device=device)
        copy = store.write(x)
        copy.release()
        del x
        torch.full((2**22,), -1.0, device=device)
        y = store.read(copy).finish()
        assert bool((y == step).all())
    assert store.pool.pinned_bytes == 4 * 2**22
