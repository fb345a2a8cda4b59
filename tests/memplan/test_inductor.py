"""Planned steps that Inductor runs."""

from __future__ import annotations

import copy
import gc
import importlib
import shutil
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._inductor import config as inductor_config

import memplan
from memplan.codegen.measured_step import measured_peak_bytes
from memplan.codegen.swap.store import tickets_held
from memplan.errors import MemplanError, UsageError
from memplan.graph_capture.fusion import fused_nodes
from memplan.planner.schedule import SwapOut
from tests.steps import differences, train

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")

SETTINGS: dict[str, Any] = {
    "solver": "greedy",
    "profile": "analytic",
    "time_limit": 3.0,
    "backend": "inductor",
}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        # Modules of torch that Inductor loads are deprecated by torch itself.
        warnings.simplefilter("ignore")
        importlib.import_module("torch._inductor.compile_fx")
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(16), nn.Dropout(0.1)
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = nn.functional.gelu(self.wide(self.norm(x)))
        added: torch.Tensor = x + self.drop(self.narrow(inner))
        return added


def net() -> nn.Module:
    return nn.Sequential(Block(), Block(), nn.BatchNorm1d(16))


def test_steps_are_those_of_the_unplanned_step_under_inductor() -> None:
    model, x = net(), torch.randn(128, 16)
    twin = copy.deepcopy(model)
    planned = memplan.compile(model, (x,), budget="80%", **SETTINGS)
    assert planned.plan.recomputed_ops > 0
    stock = torch.compile(twin, dynamic=False)
    assert differences(train(stock, twin, [x]), train(planned, model, [x])) == []
    measured_bytes = measured_peak_bytes(planned, [x], {})
    assert measured_bytes <= planned.plan.budget_bytes
    assert "Under Inductor the step was measured at" in planned.plan.notes[-1]


@pytest.mark.slow
def test_by_name_through_torch_compile() -> None:
    model, x = net(), torch.randn(128, 16)
    twin = copy.deepcopy(model)
    options = {key: value for key, value in SETTINGS.items() if key != "backend"}
    options |= {"budget": "80%", "lowering": "inductor"}
    run = torch.compile(model, backend="memplan", dynamic=False, options=options)
    stock = torch.compile(twin, dynamic=False)
    assert differences(train(stock, twin, [x]), train(run, model, [x])) == []


def planned_for(
    monkeypatch: pytest.MonkeyPatch, *off_bytes: int
) -> tuple[memplan.OptimizedModule, list[memplan.Plan]]:
    """Compile for 80 % as if each trial were so many bytes above the budget; return the plans."""
    plans: list[memplan.Plan] = []

    def measured(module: memplan.OptimizedModule, *_: Any) -> int:
        plans.append(module.plan)
        return plans[0].budget_bytes + off_bytes[len(plans) - 1]

    monkeypatch.setattr("memplan.inductor_step.measured_peak_bytes", measured)
    return memplan.compile(net(), (torch.randn(128, 16),), budget="80%", **SETTINGS), plans


@pytest.mark.slow
def test_a_step_that_is_over_is_planned_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    module, (first, second) = planned_for(monkeypatch, 1000, 0)
    assert second.budget_bytes == first.planned_peak_bytes - 1000
    assert module.plan.budget_bytes == second.budget_bytes


@pytest.mark.slow
def test_what_a_step_leaves_of_its_budget_is_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    module, (first, second) = planned_for(monkeypatch, -20_000, 0)
    assert second.budget_bytes == first.budget_bytes + 20_000
    assert module.plan.recomputed_ops < first.recomputed_ops
    assert "for a budget of" in module.plan.notes[-1]
    # Other shapes are not measured: their plans keep to what was asked.
    planner = module._backend.plan_for
    assert getattr(planner, "budget", None) == "80%"


@pytest.mark.slow
def test_the_last_plan_within_the_budget_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    module, plans = planned_for(monkeypatch, -20_000, 5_000, 2_000)
    assert len(plans) == 3
    assert module.plan.budget_bytes == plans[0].budget_bytes


@pytest.mark.slow
def test_a_step_that_stays_over_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memplan.inductor_step.measured_peak_bytes", lambda *_: 450_000)
    with pytest.raises(MemplanError, match="takes 450,000 bytes, 400,000 were asked for"):
        memplan.compile(net(), (torch.randn(128, 16),), budget=400_000, **SETTINGS)


def test_what_cannot_be_is_refused() -> None:
    x = torch.randn(4, 16)
    with pytest.raises(UsageError, match="no backend is called 'tvm'; choose eager or inductor"):
        memplan.compile(net(), (x,), budget="min", backend="tvm")


@pytest.mark.parametrize(
    "moving",
    [
        {"swap": "disk", "solver": "auto"},
        {"swap": "host", "link": "30MB/s", "solver": "save-on-cpu"},
        pytest.param({"swap": "disk", "solver": "save-on-cpu"}, marks=pytest.mark.slow),
    ],
)
def test_tensors_that_are_moved_come_back_as_they_were(moving: dict[str, str]) -> None:
    """Also where the link is so slow that a tensor is on its way out long after its last read."""
    model, x = nn.Sequential(*(Block() for _ in range(3))), torch.randn(1024, 16)
    twin = copy.deepcopy(model)
    planned = memplan.compile(model, (x,), budget="65%", **(SETTINGS | moving))
    assert any(isinstance(step, SwapOut) for step in planned.plan.schedule)
    stock = torch.compile(twin, dynamic=False)
    assert differences(train(stock, twin, [x]), train(planned, model, [x])) == []
    assert measured_peak_bytes(planned, [x], {}) <= planned.plan.budget_bytes * 1.01
    del planned
    gc.collect()
    assert tickets_held() == 0


def test_without_a_compiler_the_text_says_what_to_install() -> None:
    with (
        inductor_config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(MemplanError, match=r"needs a C\+\+ compiler and finds none; install g"),
    ):
        memplan.compile(net(), (torch.randn(4, 16),), budget="min", **SETTINGS)


def test_what_is_computed_inside_its_readers() -> None:
    """A chain of loops has no storage, up to a matrix product, which reads a buffer."""

    def joint(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        inner = torch.ops.aten.add.Tensor(torch.ops.aten.mul.Tensor(x, x), x)
        made = torch.ops.aten.exp.default(inner)
        product: torch.Tensor = torch.ops.aten.mm.default(made, w)
        return product

    traced = _traced(joint, torch.randn(4, 4), torch.randn(4, 4))
    assert [n.name for n in traced.graph.nodes if n in fused_nodes(traced)] == ["mul", "add"]


def test_a_loop_with_one_reader_may_read_more_and_do_slow_things() -> None:
    def joint(*given: torch.Tensor) -> torch.Tensor:
        many = sum(given[1:], start=given[0])
        tanh = torch.ops.aten.tanh.default(given[0])
        twice = torch.ops.aten.exp.default(given[1])
        result: torch.Tensor = many * tanh * twice - twice
        return result

    traced = _traced(joint, *(torch.randn(4, 4) for _ in range(6)))
    names = [n.name for n in traced.graph.nodes if n in fused_nodes(traced)]
    assert "add_4" in names  # of six tensors
    assert "tanh" in names
    assert "exp" not in names


def _traced(function: Callable[..., Any], *args: torch.Tensor) -> fx.GraphModule:
    traced: fx.GraphModule = torch.fx.experimental.proxy_tensor.make_fx(function)(*args)
    return traced
