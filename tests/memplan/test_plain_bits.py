"""Steps in which the tracer would take other kernels, layouts or casts than plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

import memplan
from memplan.graph_capture.batch_norm_layouts import batch_norm_as_run

_aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class _Step(nn.Module):
    def __init__(self, compute: Callable[[nn.Linear, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.compute(self.layer, x)
        return made.float().square().mean()


def _shared(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.tanh(layer(x))
    return x @ layer.weight


def _regions(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        x = layer(layer(x))
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            x = x + layer(x)
        x = layer(layer(x)) + x @ layer.weight.to(torch.bfloat16)
        with torch.autocast("cpu", enabled=False):
            x = layer(x.float())
        x = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        x = layer(layer(x))
    return x


def _grown(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return _shared(layer, x)


STEPS: dict[str, Callable[[nn.Linear, torch.Tensor], torch.Tensor]] = {
    "product": lambda layer, x: layer(x).prod(),
    "product along": lambda layer, x: layer(x)[:, :4].prod(1, keepdim=True),
    "product with zeros": lambda layer, x: layer(x).relu()[:3].prod(0),
    "transposed product": lambda layer, x: layer(x).t().prod(1),
    "product in another dtype": lambda layer, x: layer(x).prod(1, dtype=torch.float64),
    "addcdiv": lambda layer, x: torch.addcdiv(x, layer(x), x.cos() + 2, value=0.3),
    "casts in regions": _regions,
    "casts in a region": _grown,
    "transposed batch norm": lambda layer, x: (
        functional.batch_norm(layer(x).view(4, 2, 16).transpose(1, 2), None, None, training=True)
        * x.view(4, 16, 2)
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_gradients_are_plain_ones(name: str) -> None:
    _compare(STEPS[name], nullcontext)


def test_casts_are_shared_in_the_callers_region() -> None:
    _compare(_shared, lambda: torch.autocast("cpu", torch.bfloat16))


def _compare(compute: Callable[[nn.Linear, torch.Tensor], torch.Tensor], region: Any) -> None:
    torch.manual_seed(0)
    model = _Step(compute)
    twin, x = copy.deepcopy(model), torch.randn(8, 16, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    with region():
        expected = twin(y)
    expected.backward()
    with region():
        actual = memplan.compile(model, (x,), budget="100%", solver="keep-all")(x)
    actual.backward()
    assert torch.equal(actual, expected)
    assert _equal(x.grad, y.grad)
    for ours, plain in zip(model.parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None
        assert _equal(ours.grad, plain.grad)


def _equal(ours: torch.Tensor | None, plain: torch.Tensor | None) -> bool:
    if ours is None or plain is None:
        return ours is plain
    return torch.equal(ours, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.randn(4, 6, 8).transpose(1, 2),
        lambda: torch.randn(6, 4).t(),
        lambda: torch.randn(4, 6, 5, 7),
        lambda: torch.randn(4, 6, 5, 7).to(memory_format=torch.channels_last),
        lambda: torch.randn(4, 6, 5, 7)[:, :, ::2],
    ],
)
def test_batch_norm_lies_as_its_kernel_writes_it(
    made: Callable[[], torch.Tensor], training: bool, dtype: torch.dtype
) -> None:
    x = made().to(dtype)
    ones, zeros = torch.ones(x.shape[1]), torch.zeros(x.shape[1])
    args = (x, ones, zeros, zeros.clone(), ones.clone(), training, 0.1, 1e-5)
    real = _aten.native_batch_norm(*args)
    back = (torch.randn_like(x).contiguous(), x, ones, zeros, ones, *real[1:], training, 1e-5)
    real = (*real, *_aten.native_batch_norm_backward(*back, [True] * 3))
    mode = FakeTensorMode()
    with batch_norm_as_run(), mode:
        faked = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, back))
        fake = _aten.native_batch_norm(*faked[0])
        fake = (*fake, *_aten.native_batch_norm_backward(*faked[1], [True] * 3))
    assert [t.stride() for t in fake] == [t.stride() for t in real]
    assert [t.dtype for t in fake] == [t.dtype for t in real]


def test_a_copy_into_a_part_takes_the_bytes_of_the_part() -> None:
    def compute(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = layer(x) * 1.0
        made[0] = x[1]
        return made

    _compare(compute, nullcontext)
    graph = memplan.capture(_Step(compute), (torch.randn(8, 16, requires_grad=True),))
    assert any(op.target == "memplan.copied_part.default" for op in graph.ops)
