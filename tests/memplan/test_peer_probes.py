"""Probes that other planners of training steps fail, silently or with a crash."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan import OptimizedModule
from tests.steps import assert_like_plain, differences, planned, train


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Random draws and running statistics in every layer."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(16) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = functional.dropout(torch.tanh(norm(layer(x))), 0.3, self.training)
        return x


def recomputed(optimized: OptimizedModule, word: str) -> int:
    nodes = [*optimized.forward_graph.graph.nodes, *optimized.backward_graph.graph.nodes]
    return sum(1 for n in nodes if "_recompute_" in n.name and word in n.name)


def test_dropout_that_is_recomputed_repeats_its_mask_in_every_step() -> None:
    optimized = assert_like_plain(Net(), [torch.randn(512, 16)], steps=5)
    assert recomputed(optimized, "dropout") > 0


def test_batch_norm_that_is_recomputed_counts_each_step_once() -> None:
    model = Net()
    optimized = assert_like_plain(model, [torch.randn(32, 16)], steps=5)
    assert recomputed(optimized, "batch_norm") > 0
    counts = [b for name, b in model.named_buffers() if name.endswith("num_batches_tracked")]
    assert counts == [5] * 4


def test_two_optimized_models_in_one_process() -> None:
    models, x = [Net(3), Net(5)], torch.randn(32, 16)
    twins = copy.deepcopy(models)
    optimized = [planned(model, [x]) for model in models]

    def both(steps: list[Callable[..., torch.Tensor]]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        outputs = [steps[i](x) for i in (0, 1, 0)]
        for output in outputs[::-1]:
            output.square().mean().backward()
        return outputs

    expected, actual = both(list(twins)), both(list(optimized))
    assert all(torch.equal(a, b) for a, b in zip(expected, actual, strict=True))
    for model, twin in zip(models, twins, strict=True):
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            assert torch.equal(p.grad, q.grad)


def test_two_forwards_before_one_backward() -> None:
    model, x, y = Net(), torch.randn(32, 16), torch.randn(32, 16)
    twin = copy.deepcopy(model)
    optimized = planned(model, [x])

    def siamese(net: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda x, y: net(x) * net(y)

    expected = train(siamese(twin), twin, [x, y])
    assert differences(expected, train(siamese(optimized), model, [x, y])) == []
    assert len(optimized.steps) == 1


@pytest.mark.parametrize("inside", [True, False])
def test_a_loss_that_is_a_sum_expands_its_gradient(inside: bool) -> None:
    model, x = Net(), torch.randn(32, 16)
    twin = copy.deepcopy(model)
    optimized = planned(model, [x], loss=torch.sum if inside else None)
    expected = train(lambda x: twin(x).sum(), twin, [x], loss=lambda y: y)
    by_plan = optimized if inside else lambda x: optimized(x).sum()
    assert differences(expected, train(by_plan, model, [x], loss=lambda y: y)) == []


def test_another_batch_size_is_planned_when_it_comes() -> None:
    model, sizes = Net(), (32, 7, 32, 7)
    twin = copy.deepcopy(model)
    optimized = planned(model, [torch.randn(32, 16)])
    for size in sizes:
        x = torch.randn(size, 16)
        expected = train(twin, twin, [x], steps=1)
        assert differences(expected, train(optimized, model, [x], steps=1)) == []
    assert len(optimized.steps) == 2
    assert optimized.steps[0].plan.planned_peak_bytes > optimized.steps[1].plan.planned_peak_bytes
