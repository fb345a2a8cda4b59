"""Copies of single tensors: layouts, lifetimes, and links of a given speed."""

from __future__ import annotations

import gc
import time

import pytest
import torch

from memplan.codegen.swap.host import HostMemory
from memplan.codegen.swap.store import (
    ThreadStore,
    as_tensor,
    current_store,
    stores_in_use,
    tickets_held,
    value_of,
)
from memplan.codegen.swap.transfers import Copy, Read
from memplan.errors import SwapError
from memplan.planner.tiers import Tier


def store(link: Tier | None = None) -> ThreadStore:
    return ThreadStore("host", HostMemory(10**9, link))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(2, 3, 4),
        torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(10)[3:7],
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor(True),
        torch.empty(0, 5),
    ],
    ids=["plain", "permuted", "channels last", "part", "bfloat16", "scalar", "empty"],
)
def test_a_tensor_comes_back_with_its_layout(tensor: torch.Tensor) -> None:
    place = store()
    copy = place.write(tensor)
    copy.release()
    back = place.read(copy).finish()
    assert torch.equal(back, tensor)
    assert back.dtype == tensor.dtype
    assert back.stride() == tensor.stride()
    assert back.storage_offset() == tensor.storage_offset()
    assert back.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()


def test_the_source_stays_until_its_release() -> None:
    copy = store().write(torch.ones(5))
    assert copy.source is not None
    copy.release()
    assert copy.source is None


def test_the_tensor_of_a_handle_keeps_the_copy() -> None:
    handle = as_tensor(store().write(torch.ones(5)))
    alias = handle.detach()
    del handle
    gc.collect()
    value_of(alias, Copy).release()
    assert tickets_held() == 1
    with pytest.raises(SwapError, match="stands for no read"):
        value_of(alias, Read)
    del alias
    gc.collect()
    assert tickets_held() == 0


def test_a_read_is_handed_over_once() -> None:
    place = store()
    copy = place.write(torch.ones(5))
    copy.release()
    read = place.read(copy)
    read.finish()
    with pytest.raises(SwapError, match="waited for twice"):
        read.finish()


def test_a_link_lasts_as_long_as_the_tier_says() -> None:
    link = Tier(
        name="host",
        capacity_bytes=10**9,
        write_bytes_per_s=50 * 10**6,
        read_bytes_per_s=25 * 10**6,
        latency_ns=1_000_000,
    )
    place = store(link)
    began = time.monotonic()
    copies = [place.write(torch.ones(250_000, dtype=torch.uint8)) for _ in range(4)]
    for copy in copies:
        copy.release()
    written_s = time.monotonic() - began
    # Each takes 1 + 5 ms on the way out and 1 + 10 ms on the way in.
    assert written_s >= 0.024
    began = time.monotonic()
    reads = [place.read(copy) for copy in copies]
    for read in reads:
        read.finish()
    assert time.monotonic() - began >= 0.044


def test_a_store_is_found_by_name_only_while_it_is_in_use() -> None:
    place = store()
    with stores_in_use({"host": place}):
        assert current_store("host") is place
        with pytest.raises(SwapError, match="nothing is set up to move tensors to 'disk'"):
            current_store("disk")
    with pytest.raises(SwapError, match="run the whole module"):
        current_store("host")


def test_host_memory_has_a_capacity() -> None:
    with pytest.raises(SwapError, match="--host-memory"):
        HostMemory(1000).reserve(1001)
