"""Losses that leave outputs out: gradients that plain PyTorch leaves None stay None."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from memplan.codegen.partial_backward import boxed_backward, without_tangents
from memplan.graph_capture.phases import is_tangent
from tests.steps import assert_like_plain, planned


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Heads(nn.Module):
    """A trunk with dropout, and heads that share it or each other."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)))
        self.first, self.second, self.third = nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        z = functional.dropout(self.trunk(x), 0.2)
        first, second = self.first(z), self.second(z).sigmoid()
        return {"a": first, "b": second, "ab": self.third(first * second), "z": z.view(-1)}


@pytest.mark.parametrize("used", [("a",), ("b",), ("ab",), ("z",), ("a", "z"), ("a", "b", "ab")])
def test_gradients_of_outputs_that_are_not_used_stay_none(used: tuple[str, ...]) -> None:
    def loss(outputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([outputs[name].square().mean() for name in used]).sum()

    optimized = assert_like_plain(Heads(), [torch.randn(6, 8, requires_grad=True)], loss=loss)
    assert optimized.plan.recomputed_ops > 0


def test_each_backward_pass_has_outputs_of_its_own() -> None:
    x, model = torch.randn(6, 8), Heads()
    optimized = planned(model, [x])
    optimized(x)["a"].sum().backward()
    assert model.second.weight.grad is None
    assert model.first.weight.grad is not None
    model.zero_grad()
    optimized(x)["b"].sum().backward()
    assert model.first.weight.grad is None
    assert model.second.weight.grad is not None


def test_two_losses_of_one_step_add_up() -> None:
    x, model = torch.randn(6, 8), Heads()
    optimized = planned(model, [x])
    gradients = []
    for step in (model, optimized):
        torch.manual_seed(3)
        model.zero_grad()
        outputs = step(x)
        outputs["a"].square().mean().backward(retain_graph=True)
        outputs["b"].mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) == 12
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


class Overflowing(nn.Module):
    """An output whose gradient would be 0 * inf where zeros came for it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x * self.weight
        return h * self.other, torch.sqrt(h - h.detach())


def test_an_output_that_overflows_does_not_spoil_the_others() -> None:
    model = Overflowing()
    planned(model, [torch.ones(3)])(torch.ones(3))[0].sum().backward()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.ones(3))


class Changed(nn.Module):
    """An input that is changed in place, and outputs that are views of one another."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.a(x * 2).tanh()
        left, right = h.chunk(2, -1)
        return left, right, self.b(h), h


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (3,)])
def test_outputs_that_are_views_of_one_tensor(used: tuple[int, ...]) -> None:
    def loss(outputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return torch.stack([outputs[i].square().sum() for i in used]).sum()

    assert_like_plain(Changed(), [torch.randn(5, 4)], loss=loss)


def test_ops_for_nothing_are_cut_out_of_the_graph() -> None:
    optimized = planned(Heads(), [torch.randn(6, 8)])
    whole = optimized.backward_graph
    tangents = [i for i, n in enumerate(whole.graph.find_nodes(op="placeholder")) if is_tangent(n)]
    part = without_tangents(whole, tangents[1:])
    assert len(part.graph.nodes) < len(whole.graph.nodes)
    assert len(part.graph.find_nodes(op="placeholder")) == len(
        whole.graph.find_nodes(op="placeholder")
    )
    results = part.graph.output_node().args[0]
    assert isinstance(results, (tuple, list))
    assert None in results
    none_left = without_tangents(whole, tangents)
    results = none_left.graph.output_node().args[0]
    assert isinstance(results, (tuple, list))
    assert set(results) == {None}


def test_what_only_a_cut_op_reads_is_let_go_of_at_once() -> None:
    graph = fx.Graph()
    saved, other = graph.placeholder("saved"), graph.placeholder("other")
    first, second = graph.placeholder("tangents_1"), graph.placeholder("tangents_2")
    cut = graph.call_function(torch.ops.aten.mul.Tensor, (second, saved))
    alive: list[bool] = []
    kept = torch.ones(2)
    held = weakref.ref(kept)

    def watched(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        alive.append(held() is not None)
        return x * y

    made = graph.call_function(watched, (first, other))
    graph.output((made, cut))
    args = [kept, torch.ones(2), torch.ones(2), None]
    del kept
    run = boxed_backward(fx.GraphModule(nn.Module(), graph))
    assert run(args)[1] is None
    assert alive == [False]
