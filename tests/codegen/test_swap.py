"""Steps whose tensors are moved: same bits, planned peak = measured, nothing left over."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan.codegen.check import check
from memplan.codegen.optimized_module import OptimizedModule
from memplan.codegen.swap import lane
from memplan.codegen.swap.disk import DiskFile
from memplan.codegen.swap.store import ThreadStore, tickets_held
from memplan.errors import SwapError
from memplan.planner.moves import Timing
from memplan.planner.schedule import Prefetch, SwapOut
from tests.codegen.moving import moved, tier_called


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    gc.collect()
    assert tickets_held() == 0


def gradients(module: OptimizedModule) -> list[torch.Tensor]:
    found = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad(set_to_none=True)
    assert found
    return found


def disk_file(module: OptimizedModule) -> DiskFile:
    store = module._backend.swap.stores["disk"]
    assert isinstance(store, ThreadStore)
    assert isinstance(store.medium, DiskFile)
    return store.medium


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize("tier", ["disk", "host"])
@pytest.mark.parametrize("case", ["dropouts", "convolutions", "attention"])
def test_moving_changes_no_bit_and_takes_the_planned_memory(
    case: str, tier: str, tmp_path: Path
) -> None:
    module, args = moved(case, tier_called(tier), tmp_path)
    plan = module.plan
    assert sum(isinstance(step, SwapOut) for step in plan.schedule) > 3
    assert plan.planned_peak_bytes < plan.unplanned_peak_bytes
    result = check(module, args, optimizer=torch.optim.AdamW, steps=3, timed_steps=0)
    assert result.identical
    assert result.measured_peak_bytes == plan.planned_peak_bytes


@pytest.mark.parametrize("timing", [Timing(ahead=0, waits_at_once=True), Timing(ahead=9999)])
def test_transfers_that_wait_at_once_or_start_early(timing: Timing, tmp_path: Path) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path, timing)
    result = check(module, args, steps=2, timed_steps=0)
    assert result.identical


def test_decisions_are_nodes(tmp_path: Path) -> None:
    module, _ = moved("dropouts", tier_called("disk"), tmp_path)
    forward, backward = module.forward_graph, module.backward_graph
    names = {
        str(node.target)
        for graph in (forward.graph, backward.graph)
        for node in graph.nodes
        if "memplan" in str(node.target)
    }
    moves = {f"memplan.{name}.default" for name in ("swap_out", "release", "prefetch", "wait")}
    assert moves <= names
    assert any(node.name.endswith("_swapped_in") for node in backward.graph.nodes)
    for graph in (forward.graph, backward.graph):
        before = len(graph.nodes)
        graph.eliminate_dead_code()
        assert len(graph.nodes) == before, "transfers have an effect"


def test_a_slow_link_only_takes_longer() -> None:
    fast, args = moved("dropouts", tier_called("host"))
    slow, _ = moved("dropouts", tier_called("host", 20_000_000), emulates_link=True)
    found = []
    for module in (fast, slow):
        torch.manual_seed(1)
        module(*args).backward()
        found.append(gradients(module))
    assert same(*found)


def test_no_file_is_to_be_seen_while_it_runs(tmp_path: Path) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)
    loss = module(*args)
    assert os.listdir(tmp_path) == []
    loss.backward()


def test_a_backward_that_never_comes_leaves_nothing(tmp_path: Path) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)
    file = disk_file(module)
    module(*args)
    size_bytes = file._size_bytes
    for _ in range(100):
        module(*args)
    assert file._size_bytes <= 3 * size_bytes
    gc.collect()
    assert tickets_held() == 0


def test_two_forwards_before_a_backward(tmp_path: Path) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)
    alone = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        module(*args).backward()
        alone.append(gradients(module))
    losses = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        losses.append(module(*args))
    for loss, expected in zip(reversed(losses), reversed(alone), strict=True):
        loss.backward()
        assert same(gradients(module), expected)


def test_backward_twice_with_retain_graph(tmp_path: Path) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)
    torch.manual_seed(1)
    loss = module(*args)
    loss.backward(retain_graph=True)
    once = gradients(module)
    loss.backward()
    assert same(gradients(module), once)
    del loss


def test_an_exception_between_forward_and_backward(tmp_path: Path) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)

    def fails() -> None:
        loss = module(*args)
        raise ZeroDivisionError(loss)

    with pytest.raises(ZeroDivisionError):
        fails()
    module(*args).backward()


def test_two_models_in_one_process(tmp_path: Path) -> None:
    one, one_args = moved("dropouts", tier_called("disk"), tmp_path)
    other, other_args = moved("convolutions", tier_called("host"))
    alone = []
    for module, args in ((one, one_args), (other, other_args)):
        torch.manual_seed(1)
        module(*args).backward()
        alone.append(gradients(module))
    torch.manual_seed(1)
    first = one(*one_args)
    torch.manual_seed(1)
    second = other(*other_args)
    first.backward()
    second.backward()
    assert same(gradients(one), alone[0])
    assert same(gradients(other), alone[1])


def test_a_file_that_is_cut_off_is_an_error_and_no_gradient(tmp_path: Path) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)
    file = disk_file(module)
    loss = module(*args)
    for _ in range(2):
        # Twice, as a write of the forward pass may still be on its way.
        os.ftruncate(file._descriptor, 0)
        os.fsync(file._descriptor)
    assert any(isinstance(step, Prefetch) for step in module.plan.schedule)
    with pytest.raises(SwapError, match="somebody cut it off"):
        loss.backward()


def test_a_disk_that_gets_full_during_a_step_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)

    def fails(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fails)
    with pytest.raises(SwapError, match="is full; choose another folder with --swap-dir"):
        module(*args).backward()
    monkeypatch.undo()
    module.zero_grad(set_to_none=True)
    module(*args).backward()


def test_a_disk_that_is_slower_than_planned_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)
    torch.manual_seed(1)
    module(*args).backward()
    expected = gradients(module)
    write, read = os.pwrite, os.preadv

    def late(call: Callable[..., int], *arguments: object) -> int:
        time.sleep(0.01)
        return call(*arguments)

    monkeypatch.setattr(os, "pwrite", partial(late, write))
    monkeypatch.setattr(os, "preadv", partial(late, read))
    torch.manual_seed(1)
    module(*args).backward()
    assert same(gradients(module), expected)


def test_a_transfer_that_never_ends_is_an_error_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)
    goes_on = threading.Event()
    write = os.pwrite

    def stuck(*arguments: Any) -> int:
        goes_on.wait(60)
        return write(*arguments)

    monkeypatch.setattr(os, "pwrite", stuck)
    monkeypatch.setattr(lane, "PATIENCE_S", 0.05)
    with pytest.raises(SwapError, match="a transfer has not ended"):
        module(*args).backward()
    goes_on.set()
    module.zero_grad(set_to_none=True)


@pytest.mark.parametrize("call", ["pwrite", "preadv"])
def test_errors_of_the_disk_are_raised_where_they_are_waited_for(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, args = moved("dropouts", tier_called("disk"), tmp_path)

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(SwapError, match=r"swap file in .*: Input/output error"):
        module(*args).backward()
    monkeypatch.undo()
    module.zero_grad(set_to_none=True)
    module(*args).backward()
