"""Models of kinds that cannot be planned are refused in one line that names a way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.two_tensor import TwoTensor

import memplan
from memplan import OptimizedModule
from memplan.errors import CaptureError

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@pytest.fixture
def _one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class _Labelled(torch.Tensor):
    """A subclass that holds its own values."""


def _plan(model: nn.Module, x: torch.Tensor) -> OptimizedModule:
    return memplan.compile(
        model, x, loss=torch.sum, budget="100%", solver="keep-all", profile="analytic"
    )


def _refused(model: nn.Module, x: torch.Tensor) -> str:
    with pytest.raises(CaptureError) as caught:
        _plan(model, x)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_batch_norm_without_momentum() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
    said = _refused(model, torch.randn(8, 4))
    assert "BatchNorm(momentum=None)" in said
    assert said.endswith("; give it a momentum")
    # Its statistics are not counted where they are only read.
    _plan(model.eval(), torch.randn(8, 4))(torch.randn(8, 4)).backward()


@pytest.mark.usefixtures("_one_process")
def test_a_model_that_is_sharded_already() -> None:
    model = nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    said = _refused(model, torch.randn(8, 4))
    assert "sharded already" in said
    assert said.endswith("; call memplan.compile first, then fully_shard on what it returns")


def test_parameters_and_inputs_made_of_other_tensors() -> None:
    model, x = nn.Linear(4, 4), torch.randn(8, 4)
    assert "TwoTensor, which is made of other tensors" in _refused(model, TwoTensor(x, x))
    model.weight = nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)))
    assert _refused(model, x).startswith("'weight' is a TwoTensor")


class _Overwriting(nn.Module):
    """Returns the square of what it overwrites afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.layer(x) * 1.0
        squared = made * made
        return made.add_(1), squared


def test_an_output_whose_gradient_needs_what_is_overwritten() -> None:
    with pytest.raises(CaptureError, match=r"overwritten in place.*detach that output") as caught:
        memplan.compile(_Overwriting(), torch.randn(8, 4), budget="100%", profile="analytic")
    assert "\n" not in str(caught.value)


def test_subclasses_that_hold_their_own_values() -> None:
    model, x = nn.Linear(4, 4), torch.randn(8, 4).as_subclass(_Labelled)
    model.weight = nn.Parameter(torch.randn(4, 4).as_subclass(_Labelled))
    plain_loss = model(x).sum()
    plain = torch.autograd.grad(plain_loss, list(model.parameters()))
    loss: Any = _plan(model, x)(x)
    assert type(loss) is _Labelled
    torch.autograd.backward([loss])
    assert torch.equal(loss, plain_loss)
    for ours, expected in zip(model.parameters(), plain, strict=True):
        assert ours.grad is not None
        assert torch.equal(ours.grad, expected)
