"""Training steps of a model beside those of its plan, compared bit by bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import memplan


def planned(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> memplan.OptimizedModule:
    """Return `model` planned for the smallest budget, in little time."""
    chosen: dict[str, Any] = {
        "budget": "min",
        "solver": "greedy",
        "profile": "analytic",
        "time_limit": 3.0,
    }
    return memplan.compile(model, args, kwargs, **chosen | settings)


def total(output: Any) -> torch.Tensor:
    """Return a loss of every differentiable tensor in `output`."""
    tensors = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]
    terms = [t.abs().double().square().mean() for t in tensors if t.requires_grad]
    return torch.stack(terms).sum()


def fresh(value: Any) -> Any:
    """Return copies of all tensors, which the step may write to."""

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(copied, value)


def train(
    step: Callable[..., Any],
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], torch.Tensor] = total,
    steps: int = 3,
) -> list[tuple[str, Any]]:
    """Return outputs, gradients and state of each step, named; None where there is no gradient."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen: list[tuple[str, Any]] = []
    for number in range(steps):
        torch.manual_seed(100 + number)
        optimizer.zero_grad()
        given, named = fresh(tuple(args)), fresh(dict(kwargs or {}))
        output = step(*given, **named)
        for place, leaf in enumerate(pytree.tree_leaves(output)):
            value = leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
            seen.append((f"step {number} output {place}", value))
        loss(output).backward()
        seen += [(f"step {number} grad {n}", p.grad) for n, p in model.named_parameters()]
        inputs = [t for t in pytree.tree_leaves((given, named)) if isinstance(t, torch.Tensor)]
        seen += [(f"step {number} input {i}", t.detach()) for i, t in enumerate(inputs)]
        seen += [(f"step {number} input grad {i}", t.grad) for i, t in enumerate(inputs)]
        seen = [(n, v.clone() if isinstance(v, torch.Tensor) else v) for n, v in seen]
        optimizer.step()
    seen += [(f"final {n}", t.clone()) for n, t in model.state_dict().items()]
    return [*seen, ("random state", torch.get_rng_state())]


def differences(expected: list[tuple[str, Any]], actual: list[tuple[str, Any]]) -> list[str]:
    """Return the names of all values that are not the same, bit by bit."""
    assert [name for name, _ in expected] == [name for name, _ in actual]
    return [name for (name, a), (_, b) in zip(expected, actual, strict=True) if not _same(a, b)]


def assert_like_plain(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], torch.Tensor] = total,
    steps: int = 3,
    **settings: Any,
) -> memplan.OptimizedModule:
    """Train a model by its plan and a copy of it without; nothing may differ."""
    twin = copy.deepcopy(model)
    optimized = planned(model, fresh(tuple(args)), fresh(dict(kwargs or {})), **settings)
    plain = train(twin, twin, args, kwargs, loss=loss, steps=steps)
    by_plan = train(optimized, model, args, kwargs, loss=loss, steps=steps)
    assert differences(plain, by_plan) == []
    return optimized


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return bool(a is b or a == b)
    alike = (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
    return alike and torch.equal(a.nan_to_num(), b.nan_to_num())
