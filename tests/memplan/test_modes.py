"""Modes that a training script goes through: each call follows the mode that it finds."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memplan
from memplan import InfeasibleBudget, OptimizedModule
from memplan.codegen.partial_backward import compiled_node
from memplan.errors import NoSecondBackward, UsageError
from tests.steps import differences, planned, train


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Something that each mode changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = functional.dropout(torch.tanh(layer(x)), 0.3, self.training)
        normed: torch.Tensor = self.norm(x)
        return normed


def pair(x: torch.Tensor) -> tuple[Net, Net, OptimizedModule]:
    model = Net()
    return copy.deepcopy(model), model, planned(model, [x])


def squared(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def same_steps(twin: Net, model: Net, optimized: Callable[..., Any], x: torch.Tensor) -> bool:
    return not differences(train(twin, twin, [x]), train(optimized, model, [x]))


def test_training_and_evaluation_in_turns() -> None:
    x = torch.randn(16, 8)
    twin, model, optimized = pair(x)
    for mode in (True, False, True, False):
        twin.train(mode)
        optimized.train(mode)
        assert same_steps(twin, model, optimized, x)
    assert len(optimized.steps) == 2


CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
    "autocast switched off": partial(torch.autocast, "cpu", torch.bfloat16, enabled=False),
}


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("training", [True, False])
def test_a_context_that_the_caller_entered(name: str, training: bool) -> None:
    x = torch.randn(16, 8)
    twin, model, optimized = pair(x)
    twin.train(training)
    model.train(training)
    outputs = []
    for step in (twin, optimized):
        torch.manual_seed(3)
        with CONTEXTS[name]():
            outputs.append(step(x))
    assert outputs[0].dtype == outputs[1].dtype
    assert outputs[0].requires_grad == outputs[1].requires_grad
    assert torch.equal(outputs[0], outputs[1])
    if outputs[0].requires_grad:
        for output in outputs:
            output.float().square().mean().backward()
        assert torch.equal(grad_of(twin), grad_of(model))
    assert same_steps(twin, model, optimized, x)


def weight_of(model: Net) -> nn.Parameter:
    weight = model.layers[0].weight
    assert isinstance(weight, nn.Parameter)
    return weight


def bias_of(model: Net) -> nn.Parameter:
    bias = model.layers[2].bias
    assert isinstance(bias, nn.Parameter)
    return bias


def grad_of(model: Net) -> torch.Tensor:
    gradient = weight_of(model).grad
    assert isinstance(gradient, torch.Tensor)
    return gradient


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_dtype_after_compiling(dtype: torch.dtype) -> None:
    twin, model, optimized = pair(torch.randn(16, 8))
    twin.to(dtype)
    assert optimized.to(dtype) is optimized
    assert all(p.dtype == dtype for p in model.parameters())
    assert same_steps(twin, model, optimized, torch.randn(16, 8, dtype=dtype))


def test_states_go_both_ways() -> None:
    x = torch.randn(16, 8)
    twin, model, optimized = pair(x)
    train(optimized, model, [x])
    twin.load_state_dict(optimized.state_dict())
    assert same_steps(twin, model, optimized, x)
    optimized.load_state_dict(Net().state_dict())
    twin.load_state_dict(model.state_dict())
    assert same_steps(twin, model, optimized, x)


def test_frozen_parameters_are_noticed() -> None:
    x = torch.randn(16, 8)
    twin, model, optimized = pair(x)
    for frozen in (True, False, True):
        for net in (twin, model):
            net.layers[0].requires_grad_(not frozen)
            bias_of(net).requires_grad_(not frozen)
            net.zero_grad()
        assert same_steps(twin, model, optimized, x)
        assert (weight_of(model).grad is None) == frozen
    assert len(optimized.steps) == 2


def test_an_input_that_wants_a_gradient_is_noticed() -> None:
    x = torch.randn(16, 8)
    twin, model, optimized = pair(x)
    assert same_steps(twin, model, optimized, x.clone().requires_grad_())


def test_new_shapes_are_planned_once_each() -> None:
    twin, model, optimized = pair(torch.randn(16, 8))
    for size in (16, 4, 16, 4, 9):
        assert same_steps(twin, model, optimized, torch.randn(size, 8))
    assert len(optimized.steps) == 3


def test_a_new_shape_that_does_not_fit_is_refused_and_the_old_one_goes_on() -> None:
    model, x = Net(), torch.randn(16, 8)
    optimized = planned(model, [x], budget=planned(model, [x]).plan.planned_peak_bytes)
    with pytest.raises(InfeasibleBudget):
        optimized(torch.randn(4096, 8))
    assert optimized(x).requires_grad


def test_hooks_fire_once_a_step() -> None:
    x = torch.randn(16, 8)
    _, model, optimized = pair(x)
    fired: list[str] = []
    model.layers[1].register_forward_hook(lambda *_: fired.append("inner"))
    optimized.register_forward_hook(lambda *_: fired.append("outer"))
    optimized.register_forward_pre_hook(lambda *_: fired.append("before"))
    weight_of(model).register_hook(lambda g: fired.append("gradient"))
    bias_of(model).register_post_accumulate_grad_hook(lambda p: fired.append("accumulated"))
    for _ in range(2):
        fired.clear()
        output = optimized(x)
        output.register_hook(lambda g: fired.append("output"))
        squared(output).backward()
        assert sorted(fired) == [
            "accumulated",
            "before",
            "gradient",
            "inner",
            "outer",
            "output",
        ]


def test_a_second_derivative_is_refused_in_one_line() -> None:
    x = torch.randn(16, 8, requires_grad=True)
    _, _, optimized = pair(x)
    (gradient,) = torch.autograd.grad(optimized(x).sum(), x, create_graph=True)
    assert gradient.shape == x.shape
    with pytest.raises(
        NoSecondBackward, match=r"create_graph=True.*call the `original`"
    ) as caught:
        gradient.square().sum().backward()
    assert "\n" not in str(caught.value)
    (plain,) = torch.autograd.grad(optimized.original(x).sum(), x, create_graph=True)
    plain.square().sum().backward()


def test_what_a_forward_pass_saves_goes_with_its_outputs() -> None:
    x = torch.randn(16, 8)
    _, _, optimized = pair(x)
    gc.collect()
    gc.disable()
    try:
        node = compiled_node([optimized(x)], [x])
        seen = weakref.ref(node)
        del node
        assert seen() is None
    finally:
        gc.enable()


def test_new_shapes_can_be_refused() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh())
    with pytest.raises(UsageError, match="choose plan or refuse"):
        memplan.compile(model, torch.randn(16, 8), budget="100%", new_shapes="never")
    optimized = memplan.compile(
        model, torch.randn(16, 8), budget="100%", profile="analytic", new_shapes="refuse"
    )
    optimized(torch.randn(16, 8)).sum().backward()
    for module in (optimized, copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        with pytest.raises(UsageError, match=r"shapes \[4, 8\] were .* pad them to \[16, 8\]"):
            module(torch.randn(4, 8))
    assert len(optimized.steps) == 1
    with torch.no_grad():
        assert optimized(torch.randn(4, 8)).shape == (4, 4)
    optimized.plan_for(torch.randn(4, 8))
    optimized(torch.randn(4, 8)).sum().backward()
    optimized.eval()
    optimized(torch.randn(16, 8)).sum().backward()


def test_gradients_of_chosen_tensors_only() -> None:
    x = torch.randn(16, 8, requires_grad=True)
    twin, model, optimized = pair(x)
    found = []
    for net, step in ((twin, twin), (model, optimized)):
        torch.manual_seed(2)
        wanted = [x, weight_of(net)]
        found.append(torch.autograd.grad(squared(step(x)), wanted))
        assert all(p.grad is None for p in net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_pickled_module_goes_on_by_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(16, 8)
    _, model, optimized = pair(x)
    train(optimized, model, [x])
    written = io.BytesIO()
    torch.save(optimized, written)
    written.seek(0)
    again = torch.load(written, weights_only=False)
    assert isinstance(again, OptimizedModule)
    monkeypatch.setattr("memplan.step_planner.make_plan", None)
    expected = train(optimized, model, [x])
    assert differences(expected, train(again, again.original, [x])) == []
    assert again.plan == optimized.plan


def test_a_pickled_module_plans_new_shapes() -> None:
    x = torch.randn(16, 8)
    _, model, optimized = pair(x)
    again = pickle.loads(pickle.dumps(optimized))
    y = torch.randn(5, 8)
    assert differences(train(optimized, model, [y]), train(again, again.original, [y])) == []
    assert again.plan.budget_bytes == optimized.plan.budget_bytes


def test_what_cannot_be_pickled_is_named() -> None:
    optimized = planned(Net(), [torch.randn(4, 8)], loss=lambda output: output.sum())
    with pytest.raises(UsageError, match=r"the loss cannot be pickled .* state_dict"):
        pickle.dumps(optimized)
    build: Any = lambda params: torch.optim.SGD(params, lr=0.1)  # noqa: E731
    optimized = planned(Net(), [torch.randn(4, 8)], optimizer=build)
    with pytest.raises(UsageError, match="makes the optimizer cannot be pickled"):
        pickle.dumps(optimized)
