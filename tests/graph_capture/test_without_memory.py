"""Models without memory: converted, initialised, and traced as a CUDA device would run them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional

import memplan
from memplan.graph_capture.graph import Graph
from memplan.graph_capture.without_memory import without_memory

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Attention(nn.Module):
    """Attention of four heads, with dropout before and in it."""

    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        self.masked = masked
        self.qkv = nn.Linear(32, 96)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.drop(self.qkv(x)).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        mask = x.new_ones(5, 5, dtype=torch.bool).tril() if self.masked else None
        return functional.scaled_dot_product_attention(q, k, v, mask, dropout_p=0.1).sum()


def test_conversion_keeps_sharing_and_changes_every_dtype() -> None:
    with without_memory(FakeTensorMode()):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4))
        model[1].weight = model[0].weight
        assert model.to(torch.bfloat16) is model
        assert model[1].weight is model[0].weight
        model.half()
        assert model[1].weight is model[0].weight
    floats = [t for t in model.state_dict().values() if t.is_floating_point()]
    assert {t.dtype for t in floats} == {torch.float16}
    assert all(isinstance(p, FakeTensor) and p.requires_grad for p in model.parameters())


def test_drawing_from_a_truncated_normal_needs_no_values() -> None:
    before = nn.init._no_grad_trunc_normal_
    with without_memory(FakeTensorMode()):
        nn.init.trunc_normal_(torch.empty(4))
    assert nn.init._no_grad_trunc_normal_ is before


def captured(dtype: torch.dtype, device: str | None, *, masked: bool = False) -> Graph:
    with without_memory(FakeTensorMode()):
        model, x = Attention(masked=masked).to(dtype), torch.randn(2, 5, 32, dtype=dtype)
    return memplan.capture(model, x, device=device, profile="analytic")


@pytest.mark.parametrize(
    ("dtype", "masked", "kernel"),
    [
        (torch.bfloat16, False, "_scaled_dot_product_flash_attention"),
        (torch.bfloat16, True, "_scaled_dot_product_efficient_attention"),
        (torch.float32, False, "_scaled_dot_product_efficient_attention"),
    ],
)
def test_attention_and_dropout_are_the_kernels_of_the_device(
    dtype: torch.dtype, masked: bool, kernel: str
) -> None:
    graph = captured(dtype, "h100", masked=masked)
    targets = {op.target.removeprefix("aten::").removeprefix("aten.") for op in graph.ops}
    names = {target.partition(".")[0] for target in targets}
    assert {kernel, f"{kernel}_backward", "native_dropout"} <= names
    masks = [
        graph.tensors[t].nbytes
        for op in graph.ops
        if "native_dropout.default" in op.target
        for t in op.outputs
    ]
    assert min(masks) == 2 * 5 * 96 + -(2 * 5 * 96) % 512


def test_for_this_machine_its_own_kernels_are_traced() -> None:
    graph = captured(torch.float32, None)
    assert not any("efficient_attention" in op.target for op in graph.ops)
