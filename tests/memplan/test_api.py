"""The Python API as a training script uses it: nothing but the memory and the time may differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memplan
from memplan.errors import CaptureError, PlanMismatch, UsageError
from memplan.planner.simulate import simulate

WIDTH, BATCH = 32, 256
BUDGET = "85%"


class Net(nn.Module):
    """Dropout, batch normalisation and enough layers that there is something to recompute."""

    def __init__(self, layers: int = 4, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, dtype=dtype) for _ in range(layers))
        self.norm = nn.BatchNorm1d(WIDTH, dtype=dtype)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            x = functional.dropout(torch.tanh(layer(x)), 0.2, self.training)
        x = self.norm(x)
        return x if scale is None else x * scale


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def batch(size: int = BATCH, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size, WIDTH, dtype=dtype)


def squared(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def compiled(model: nn.Module, *args: Any, **settings: Any) -> memplan.OptimizedModule:
    return memplan.compile(
        model,
        args,
        **{"budget": BUDGET, "solver": "chen-greedy", "profile": "analytic"} | settings,
    )


def train(
    step: Callable[..., Any],
    model: nn.Module,
    *args: Any,
    steps: int = 3,
    optimizer: torch.optim.Optimizer | None = None,
    **kwargs: Any,
) -> list[torch.Tensor]:
    """Losses and gradients of all steps, then the state; the same draws each time."""
    torch.manual_seed(1)
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    seen: list[torch.Tensor] = []
    for _ in range(steps):
        optimizer.zero_grad()
        output = step(*args, **kwargs)
        loss: torch.Tensor = output if output.numel() == 1 else squared(output)
        loss.backward()
        seen += [
            loss.detach(),
            *(p.grad.clone() for p in model.parameters() if p.grad is not None),
        ]
        optimizer.step()
    return [*seen, *(t.clone() for t in model.state_dict().values()), torch.get_rng_state()]


def assert_trains_alike(model: nn.Module, *args: Any, loss: Any = None, **settings: Any) -> None:
    """Three steps by a plan that recomputes equal three plain ones, bit by bit."""
    twin = copy.deepcopy(model)
    kwargs = settings.get("kwargs") or {}
    optimized = compiled(model, *args, loss=loss, **settings)
    assert optimized.plan.recomputed_ops > 0
    extra = 0 if loss is None else len(args) - 1

    def plain(*inputs: Any, **named: Any) -> Any:
        split = len(inputs) - extra
        output = twin(*inputs[:split], **named)
        return output if loss is None else loss(output, *inputs[split:])

    expected = train(plain, twin, *args, **kwargs)
    actual = train(optimized, model, *args, **kwargs)
    assert len(actual) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


def test_a_planned_step_trains_like_a_plain_one() -> None:
    assert_trains_alike(Net(), batch(), loss=squared)


def test_without_a_loss_the_output_comes_back() -> None:
    assert_trains_alike(Net(), batch())


def test_a_loss_module_with_a_target() -> None:
    targets = torch.randint(WIDTH, (BATCH,))
    assert_trains_alike(Net(), batch(), targets, loss=nn.CrossEntropyLoss())


def test_a_model_that_returns_its_loss() -> None:
    class WithLoss(Net):
        def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
            return squared(super().forward(x, scale))

    assert_trains_alike(WithLoss(), batch())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    assert_trains_alike(Net(dtype=dtype), batch(dtype=dtype), loss=squared)


def test_keyword_inputs() -> None:
    assert_trains_alike(Net(), batch(), kwargs={"scale": torch.full((WIDTH,), 2.0)})


def test_dicts_in_and_dataclasses_out() -> None:
    @dataclass
    class Output:
        hidden: torch.Tensor
        logits: torch.Tensor
        cache: None = None

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, inputs: dict[str, torch.Tensor]) -> Output:
            hidden = self.net(inputs["x"])
            return Output(hidden=hidden, logits=hidden * inputs["scale"])

    inputs = {"x": batch(), "scale": torch.full((WIDTH,), 2.0)}
    model = Wrapped()
    optimized = compiled(model, inputs, loss=None)
    output = optimized(inputs)
    assert type(output) is Output
    assert output.cache is None
    assert torch.equal(output.logits, output.hidden * 2)
    output.logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_model_and_the_optimized_one_are_one_state() -> None:
    model = Net()
    optimized = compiled(model, batch(), loss=squared)
    assert list(optimized.state_dict()) == list(model.state_dict())
    assert [n for n, _ in optimized.named_parameters()] == [n for n, _ in model.named_parameters()]
    for mine, theirs in zip(optimized.parameters(), model.parameters(), strict=True):
        assert mine is theirs
    assert [n for n, _ in optimized.named_modules()] == [n for n, _ in model.named_modules()]
    assert optimized.layers is model.layers
    saved = {name: tensor.clone() for name, tensor in optimized.state_dict().items()}
    train(optimized, model, batch(), steps=1)
    optimized.load_state_dict(saved)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, saved[name])


def test_an_optimizer_may_be_built_before_or_after() -> None:
    model = Net()
    twin = copy.deepcopy(model)
    before = torch.optim.AdamW(model.parameters(), lr=1e-2)
    optimized = compiled(model, x := batch(), loss=squared, optimizer=before)
    assert optimized.plan.bytes_at_peak.get("optimizer_state", 0) > 0
    mine = train(optimized, model, x, optimizer=before)
    theirs = train(
        lambda inputs: squared(twin(inputs)),
        twin,
        x,
        optimizer=torch.optim.AdamW(twin.parameters(), lr=1e-2),
    )
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_new_input_shape_is_planned_when_it_comes() -> None:
    model = Net()
    optimized = compiled(model, batch(), loss=squared)
    assert len(optimized.steps) == 1
    twin = copy.deepcopy(model)
    x = batch(BATCH * 2)
    expected = train(lambda inputs: squared(twin(inputs)), twin, x, steps=1)
    actual = train(optimized, model, x, steps=1)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    assert len(optimized.steps) == 2
    # Both stay: neither shape is planned again.
    train(optimized, model, batch(), steps=1)
    train(optimized, model, batch(BATCH * 2), steps=1)
    assert len(optimized.steps) == 2


def test_planning_for_known_inputs_gives_their_plan_again() -> None:
    optimized = compiled(Net(), batch(), loss=squared)
    first = optimized.plan_for(batch())
    other = optimized.plan_for(batch(BATCH * 2))
    assert optimized.plan_for(batch()) is first
    assert optimized.plan_for(batch(BATCH * 2)) is other
    assert first is not other
    assert len(optimized.steps) == 2


def test_eval_and_no_grad_behave_as_without_a_plan() -> None:
    model = Net()
    optimized = compiled(model, x := batch(), solver="greedy")
    assert optimized.training
    optimized.eval()
    assert not optimized.training
    assert not model.training
    assert not any(module.training for module in model.modules())
    with torch.no_grad():
        assert torch.equal(optimized(x), model(x))
    assert not optimized(x).isnan().any()
    assert torch.equal(optimized(x), model(x))
    model.train()
    assert optimized.training
    with torch.inference_mode():
        torch.manual_seed(2)
        expected = model(x)
        torch.manual_seed(2)
        assert torch.equal(optimized(x), expected)


def test_attributes_of_the_model_are_read_and_set_through_it() -> None:
    class Tempered(Net):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = 1.0

        def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
            return super().forward(x) / self.temperature

    model = Tempered().eval()
    optimized = compiled(model, x := batch(), solver="greedy")
    before = optimized(x)
    optimized.temperature = 2.0
    assert model.temperature == 2.0
    assert torch.equal(optimized(x), before / 2)
    optimized.extra = nn.Linear(1, 1)
    assert model.extra is optimized.extra
    assert "extra.weight" in model.state_dict()
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = optimized.no_such_name


def test_hooks_of_the_model_and_its_parts_run() -> None:
    model = Net()
    calls: list[str] = []
    model.register_forward_hook(lambda *_: calls.append("model"))
    model.norm.register_forward_hook(lambda module, args, output: output * 2)
    optimized = compiled(model, x := batch(), solver="greedy")
    model.eval()
    plain = model(x)
    assert torch.equal(optimized(x), plain)
    optimized.register_forward_hook(lambda *_: calls.append("optimized"))
    optimized(x)
    assert calls[-1] == "optimized"
    gradients: list[torch.Tensor] = []
    next(model.layers.parameters()).register_hook(gradients.append)
    optimized(x).sum().backward()
    assert len(gradients) == 1


def test_a_frozen_parameter_gets_no_gradient_and_thawing_plans_again() -> None:
    model = Net()
    model.layers[0].requires_grad_(False)
    optimized = compiled(model, x := batch(), loss=squared)
    optimized(x).backward()
    assert model.layers[0].weight.grad is None
    model.layers[0].requires_grad_(True)
    optimized(x).backward()
    assert model.layers[0].weight.grad is not None
    assert len(optimized.steps) == 2


def test_tensors_that_the_user_passes_get_their_gradient() -> None:
    model = Net()
    x = batch().requires_grad_()
    optimized = compiled(model, x, loss=squared)
    optimized(x).backward()
    assert x.grad is not None
    torch.manual_seed(1)
    y = x.detach().clone().requires_grad_()
    squared(copy.deepcopy(model)(y)).backward()
    z = x.detach().clone().requires_grad_()
    torch.manual_seed(1)
    optimized(z).backward()
    assert y.grad is not None
    assert z.grad is not None
    assert torch.equal(z.grad, y.grad)


def test_a_number_taken_out_of_a_tensor_scales_alike() -> None:
    class Scaled(Net):
        def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
            return super().forward(x) * x.abs().mean().item()

    assert_trains_alike(Scaled(), batch())


def test_saved_and_loaded_it_is_the_same_step(tmp_path: Path) -> None:
    model = Net()
    optimized = compiled(model, x := batch(), loss=squared)
    folder = optimized.save(tmp_path / "plan")
    twin = Net()
    twin.load_state_dict(model.state_dict())
    loaded = memplan.load(folder, twin, loss=squared)
    expected = train(optimized, model, x)
    actual = train(loaded, twin, x)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    assert loaded.plan == optimized.plan
    assert loaded.plan.to_json() == optimized.plan.to_json()
    assert loaded.forward_graph.code == optimized.forward_graph.code
    assert loaded.backward_graph.code == optimized.backward_graph.code


def test_a_plan_is_refused_for_what_it_was_not_made_for(tmp_path: Path) -> None:
    folder = compiled(Net(), batch(), loss=squared).save(tmp_path / "plan")
    with pytest.raises(
        PlanMismatch, match=r"another model: it has a parameter 'layers\.3\.weight'"
    ):
        memplan.load(folder, Net(layers=3), loss=squared)
    with pytest.raises(PlanMismatch, match="bytes"):
        memplan.load(folder, Net(dtype=torch.float64), loss=squared)
    other_shape = memplan.load(folder, Net(), loss=squared)
    with pytest.raises(PlanMismatch, match="other input shapes"):
        other_shape(batch(BATCH * 2))
    with pytest.raises(PlanMismatch):
        memplan.load(folder, Net())(batch())
    with pytest.raises(UsageError, match="cannot read the plan"):
        memplan.load(tmp_path, Net())


def test_plan_is_what_compile_follows() -> None:
    settings: dict[str, Any] = {"budget": BUDGET, "solver": "chen-greedy", "profile": "analytic"}
    model = Net()
    plan = memplan.plan(model, batch(), loss=squared, **settings)
    assert plan.schedule == compiled(model, batch(), loss=squared).plan.schedule
    assert plan.planned_peak_bytes <= plan.budget_bytes < plan.unplanned_peak_bytes


def test_capture_then_solve_is_plan() -> None:
    model = Net()
    graph = memplan.capture(model, batch(), loss=squared, profile="analytic")
    assert graph == memplan.Graph.from_json(graph.to_json())
    plan = memplan.solve(graph, budget=BUDGET, solver="chen-greedy")
    whole = memplan.plan(
        model, batch(), loss=squared, budget=BUDGET, solver="chen-greedy", profile="analytic"
    )
    assert plan.schedule == whole.schedule
    assert simulate(graph, plan.schedule).peak_bytes == plan.planned_peak_bytes


def test_nothing_runs_while_it_is_planned() -> None:
    model = Net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    x = batch()
    after_inputs = torch.get_rng_state()
    compiled(model, x, loss=squared)
    assert torch.equal(torch.get_rng_state(), after_inputs)
    assert not torch.equal(state, after_inputs)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(p.grad is None for p in model.parameters())


def test_copies_and_several_modules_do_not_disturb_each_other() -> None:
    first = compiled(Net(), x := batch(), loss=squared)
    second = compiled(Net(layers=6), x, loss=squared)
    copied = copy.deepcopy(first)
    for mine, own, others in zip(
        copied.parameters(), copied.original.parameters(), first.parameters(), strict=True
    ):
        assert mine is own
        assert mine is not others
    expected = train(first, first.original, x)
    assert all(
        torch.equal(a, b) for a, b in zip(train(copied, copied.original, x), expected, strict=True)
    )
    train(second, second.original, x)
    assert [len(module.steps) for module in (first, second, copied)] == [1, 1, 1]
    assert copied.plan is first.plan


def test_inputs_that_the_graph_does_not_read_count() -> None:
    class Ignoring(Net):
        def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
            return super().forward(x)

    alone = memplan.capture(Ignoring(), batch(), loss=squared, profile="analytic")
    beside = memplan.capture(
        Ignoring(), (batch(), torch.zeros(1000)), loss=squared, profile="analytic"
    )
    assert beside.given_bytes == alone.given_bytes + 4000


def test_what_cannot_be_meant_is_refused_before_the_capture() -> None:
    with pytest.raises(UsageError, match=r"loss=CrossEntropyLoss\(\)"):
        memplan.plan(Net(), batch(), budget="min", loss=nn.CrossEntropyLoss)

    def nothing() -> None: ...

    with pytest.raises(UsageError, match="the model's output as its first argument"):
        memplan.plan(Net(), batch(), budget="min", loss=nothing)
    with pytest.raises(CaptureError, match="no backward pass"):
        memplan.plan(Net().requires_grad_(False), batch(), budget="min", profile="analytic")
    with torch.no_grad(), pytest.raises(CaptureError, match="no backward pass"):
        memplan.compile(Net(), batch(), budget="min", profile="analytic")
