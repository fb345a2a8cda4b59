"""memplan as a backend of torch.compile, found by its name."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.registry import list_backends
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional

from tests.steps import differences, train

OPTIONS: dict[str, Any] = {
    "budget": "min",
    "solver": "greedy",
    "profile": "analytic",
    "time_limit": 3,
}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Two halves, with a graph break between them where `breaks`."""

    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__()
        self.breaks = breaks
        self.first = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)))
        self.second = copy.deepcopy(self.first)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.dropout(self.first(x), 0.2)
        if self.breaks:
            torch._dynamo.graph_break()
        normed: torch.Tensor = self.norm(self.second(x))
        return normed


def compiled(model: nn.Module, **options: Any) -> Any:
    return torch.compile(model, backend="memplan", dynamic=False, options=OPTIONS | options)


def test_torch_knows_the_backend() -> None:
    assert "memplan" in list_backends()


def test_a_compiled_model_trains_like_a_plain_one() -> None:
    model, x = Net(), torch.randn(16, 8)
    twin = copy.deepcopy(model)
    assert differences(train(twin, twin, [x]), train(compiled(model), model, [x])) == []


def test_the_optimizer_can_be_named() -> None:
    model, x = Net(), torch.randn(16, 8)
    compiled(model, optimizer="adamw")(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_other_shapes_get_plans_of_their_own() -> None:
    model = Net().eval()
    run = compiled(model)
    for size in (16, 5, 16):
        x = torch.randn(size, 8)
        model.first.requires_grad_(True)
        torch.manual_seed(1)
        expected = model(x)
        torch.manual_seed(1)
        assert torch.equal(run(x), expected)


@pytest.mark.parametrize("budget", ["min", "90%", 40_000, "1GB"])
def test_pieces_between_graph_breaks_are_planned_each(budget: str | int) -> None:
    model, x = Net(breaks=True), torch.randn(16, 8)
    twin = copy.deepcopy(model)
    expected = train(twin, twin, [x])
    with pytest.warns(UserWarning, match="the model breaks into several graphs") as caught:
        actual = train(compiled(model, budget=budget), model, [x])
    assert ["number 1" in str(w.message) for w in caught] == [True, False]
    assert differences(expected, actual) == []


def test_one_graph_brings_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(Net())(torch.randn(4, 8)).sum().backward()


def test_the_last_piece_has_what_the_others_leave() -> None:
    model, x = Net(breaks=True), torch.randn(16, 8)
    with pytest.warns(UserWarning, match="several graphs") as caught:
        compiled(model, budget=1_000_000)(x).sum().backward()
    shares = [str(w.message).partition("own for ")[2] for w in caught]
    assert shares[0].startswith("500.00 kB")
    assert 900 < float(shares[1].split()[0]) < 1000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs a budget"),
        ({"budget": "lots"}, "cannot read 'lots' as a size"),
        ({"budget": "50%", "solvr": "greedy"}, "no option 'solvr'; did you mean 'solver'"),
        ({"budget": "50%", "x": 1}, "no option 'x'; choose from budget, device, lowering"),
        ({"budget": "50%", "solver": "magic"}, "magic"),
        ({"budget": "50%", "time_limit": -1}, "-1 is not a positive number of seconds"),
        ({"budget": "50%", "profile": "guess"}, "no profile is called 'guess'"),
        ({"budget": "1B", "solver": "greedy", "profile": "analytic"}, "no schedule fits 1 bytes"),
    ],
)
def test_options_are_checked(options: dict[str, Any], says: str) -> None:
    run = torch.compile(Net(), backend="memplan", dynamic=False, options=options)
    with pytest.raises(BackendCompilerFailed) as caught:
        run(torch.randn(4, 8))
    assert says in str(caught.value.inner_exception)
    assert "\n" not in str(caught.value.inner_exception)


def test_a_mode_means_nothing_here() -> None:
    run = torch.compile(Net(), backend="memplan", mode="max-autotune")
    with pytest.raises(BackendCompilerFailed, match="takes no mode"):
        run(torch.randn(4, 8))


def test_dynamic_shapes_are_refused_with_the_way_out() -> None:
    run = torch.compile(Net(), backend="memplan", dynamic=True, options=OPTIONS)
    with pytest.raises(BackendCompilerFailed, match="dynamic=False"):
        run(torch.randn(4, 8))
