"""What a training script changes between two calls: each call follows what it finds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import CaptureError, UsageError
from tests.steps import differences, planned, total, train


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Reads attributes of many types and takes arguments of all forms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))
        self.drop = nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("scale", torch.ones(8))
        self.alpha, self.times, self.mode = 0.5, 2, "plain"
        self.table, self.parts = torch.ones(8), [1]

    def forward(
        self, x: torch.Tensor, y: Any = None, *more: Any, w: Any = 1.0, flag: bool = False
    ) -> torch.Tensor:
        h = self.norm(torch.relu(self.second(self.drop(torch.tanh(self.first(x))))))
        h = h * self.scale * self.alpha * self.table + len(self.parts)
        for _ in range(self.times):
            h = torch.sigmoid(self.third(h))
        h = h if self.mode == "plain" else h * 3
        h = h if y is None else h + y
        for one in more:
            h = h * one
        result: torch.Tensor = -h * w if flag else h * w
        return result


def given(number: int = 0) -> torch.Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(number))


def attribute(name: str, value: Any) -> Callable[[Any], None]:
    owner, _, last = name.rpartition(".")
    return lambda net: setattr(net.get_submodule(owner), last, value)


def tie(net: Any) -> None:
    net.second.weight = net.third.weight = net.first.weight


def untie(net: Any) -> None:
    net.second.weight = nn.Parameter(torch.ones(8, 8))


def replace_a_layer(net: Any) -> None:
    net.second = nn.Linear(8, 8, bias=False)


def swap_the_data(net: Any) -> None:
    net.first.weight.data = torch.ones(8, 8).t()


CHANGES: dict[str, list[Callable[[Any], None]]] = {
    "a float": [attribute("alpha", 0.7), attribute("alpha", 2)],
    "a string": [attribute("mode", "other")],
    "a count": [attribute("times", 3), attribute("times", 0)],
    "a share": [attribute("drop.p", 0.9), attribute("drop.p", 0.0)],
    "a momentum": [attribute("norm.momentum", 0.5)],
    "a list": [lambda net: net.parts.append(2)],
    "a plain tensor": [lambda net: net.table.mul_(3), attribute("table", torch.zeros(8))],
    "a buffer": [lambda net: net.scale.mul_(3), attribute("scale", torch.full((8,), 2.0))],
    "a part's mode": [lambda net: net.drop.eval(), lambda net: net.norm.eval()],
    "a module": [attribute("drop", nn.Identity()), replace_a_layer],
    "parameters tied": [tie, untie],
    "data of a parameter": [swap_the_data],
    "what is trained": [lambda net: net.second.requires_grad_(False)],
    "hooks": [lambda net: net.first.register_forward_hook(lambda *a: a[2] * 2)],
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_the_model_is_noticed(what: str) -> None:
    model = Net()
    twin, optimized = copy.deepcopy(model), planned(model, [given()])
    for change in (lambda net: None, *CHANGES[what]):
        for net in (twin, model):
            torch.manual_seed(4)
            change(net)
        expected = train(twin, twin, [given()], steps=1)
        assert differences(expected, train(optimized, model, [given()], steps=1)) == []


def test_arguments_of_any_form_are_never_ignored() -> None:
    model = Net()
    twin, optimized = copy.deepcopy(model), planned(model, [given()])
    same, wanted = given(), given(1).requires_grad_()
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((given(),), {}),
        ((given(),), {"w": 2.0}),
        ((given(),), {"w": torch.tensor(3.0), "flag": True}),
        ((given(), given(1)), {}),
        ((given(), None, given(1), given(2)), {}),
        ((), {"y": given(3), "x": given(1)}),
        ((same, same), {}),
        ((wanted, wanted.detach()), {}),
        ((torch.randn(8, 6).t(), torch.randn(6, 16)[:, ::2]), {}),
        ((torch.randn(1, 8).expand(6, 8),), {}),
    ]
    for args, kwargs in calls:
        found = []
        for net, step in ((twin, twin), (model, optimized)):
            torch.manual_seed(1)
            output = step(*args, **kwargs)
            total(output).backward()
            found.append([output, *(p.grad for p in net.parameters()), wanted.grad])
            net.zero_grad()
            wanted.grad = None
        for a, b in zip(*found, strict=True):
            assert a is b is None or torch.equal(a, b)


def test_what_a_script_draws_between_forward_and_backward_does_not_matter() -> None:
    model = Net()
    twin, optimized = copy.deepcopy(model), planned(model, [given()])
    found = []
    for net, step in ((twin, twin), (model, optimized)):
        torch.manual_seed(1)
        output = step(given())
        between = torch.rand(3)
        torch.manual_seed(9)
        total(output).backward()
        found.append([between, torch.rand(3), *(p.grad for p in net.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_hooks_on_all_modules_at_once_are_refused() -> None:
    optimized = planned(Net(), [given()])
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(UsageError, match="hooks are registered on all modules"):
            optimized(given())
    finally:
        hook.remove()
    assert optimized(given()).requires_grad


def test_a_planned_module_inside_vmap_is_refused_by_name() -> None:
    optimized = planned(Net().eval(), [given()])
    with pytest.raises(CaptureError, match=r"inside torch\.vmap"):
        torch.vmap(optimized)(torch.stack([given(), given(1)]))
