import threading
from typing import Any

import pytest
import torch

from memplan.errors import ProfileError
from memplan.graph_capture.allocations import Allocations, record_allocations


def test_peak_is_that_of_the_running_sum() -> None:
    allocations = Allocations((10, 20, -10, 5, -20))
    assert (allocations.peak_bytes, allocations.held_bytes) == (30, 5)
    assert Allocations(()).peak_bytes == 0
    assert Allocations((-5, 3)).peak_bytes == 0


def test_a_chain_holds_two_tensors_at_its_worst_and_one_at_its_end() -> None:
    def run() -> torch.Tensor:
        return torch.ones(1000).exp().neg()

    result, allocations = record_allocations(run)
    assert allocations.deltas_bytes == (4000, 4000, -4000, 4000, -4000)
    assert (allocations.peak_bytes, allocations.held_bytes) == (8000, 4000)
    assert result.shape == (1000,)


def test_a_block_of_an_earlier_recording_is_seen_to_go() -> None:
    held, _ = record_allocations(lambda: [torch.ones(1000)])
    _, allocations = record_allocations(held.clear)
    assert allocations.deltas_bytes == (-4000,)


def test_workspace_inside_a_kernel_is_seen() -> None:
    x = torch.ones(64, 3, 9, 9)
    weight = torch.ones(8, 3, 3, 3)
    torch.conv2d(x, weight)
    result, allocations = record_allocations(lambda: torch.conv2d(x, weight))
    assert allocations.held_bytes == result.untyped_storage().nbytes()
    assert allocations.peak_bytes > allocations.held_bytes


def test_backward_is_seen() -> None:
    x = torch.ones(1000, requires_grad=True)
    loss = (x.exp() * 2).sum()
    _, allocations = record_allocations(loss.backward)
    assert allocations.peak_bytes >= 2 * 4000


def test_a_failing_run_leaves_no_profiler_behind() -> None:
    def fail() -> None:
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        record_allocations(fail)
    assert record_allocations(lambda: None)[1].deltas_bytes == ()


def test_an_active_profiler_is_reported() -> None:
    with pytest.raises(ProfileError, match="profiler is active"):
        record_allocations(lambda: record_allocations(lambda: None))


def test_other_python_threads_are_not_seen() -> None:
    def run() -> None:
        thread = threading.Thread(target=torch.ones, args=(1000,))
        thread.start()
        thread.join()

    assert record_allocations(run)[1].deltas_bytes == ()


@pytest.mark.slow
def test_events_equal_those_of_the_newer_profiler() -> None:
    x = torch.randn(4, 3, 16, 16)
    layer = torch.nn.Conv2d(3, 8, 3)

    def run() -> None:
        layer(x).relu().sum().backward()

    run()
    layer.zero_grad()
    run_again = record_allocations(run)[1].deltas_bytes
    layer.zero_grad()
    with torch.profiler.profile(profile_memory=True) as profiler:
        run()
    events: list[tuple[int, int]] = []

    def walk(event: Any) -> None:
        if event.name == "[memory]":
            events.append((event.start_time_ns, event.extra_fields.alloc_size))
        for child in event.children:
            walk(child)

    for event in profiler.profiler.kineto_results.experimental_event_tree():
        walk(event)
    assert sorted(run_again) == sorted(nbytes for _, nbytes in events)
