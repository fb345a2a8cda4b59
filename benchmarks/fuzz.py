"""Trains random modules by plans for random budgets beside plain PyTorch.

    python -m benchmarks.fuzz [--count 500] [--first 0] [--solver auto]

Each module is planned for a budget between the smallest that is found and its unplanned peak, and
takes steps that must not differ from plain ones in any bit of outputs, gradients, parameters,
buffers or random state; then one more, whose measured peak must be within the budget. Modules
that plain PyTorch refuses to differentiate are passed over.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import memplan
from benchmarks.random_modules import RandomModule, random_inputs
from memplan.codegen.peak_meter import live_bytes, measure_peak

STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of one module; `differs` names what is not as in plain PyTorch."""

    seed: int
    ops: int
    unplanned_bytes: int
    budget_bytes: int
    planned_bytes: int
    measured_bytes: int
    recomputed: int
    differs: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the step is the plain one and within its budget."""
        within = self.measured_bytes <= self.planned_bytes <= self.budget_bytes
        return within and not self.differs


def main(argv: Sequence[str] | None = None) -> int:
    """Run all trials; 1 if one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="seed of the first module")
    parser.add_argument("--solver", default="auto")
    asked = parser.parse_args(argv)
    tally: Counter[str] = Counter()
    started, seed = time.perf_counter(), asked.first
    while tally["held"] + tally["failed"] < asked.count:
        outcome = _outcome(seed, asked.solver)
        tally[outcome.split(":")[0]] += 1
        if not outcome.startswith(("held", "passed over")):
            print(f"seed {seed}: {outcome}", flush=True)
        seed += 1
    seconds = time.perf_counter() - started
    counts = ", ".join(f"{count} {what}" for what, count in sorted(tally.items()))
    print(f"seeds {asked.first} to {seed - 1}: {counts}; {seconds:.0f} s")
    return 1 if tally["failed"] else 0


def try_module(seed: int, solver: str = "auto") -> Trial | None:
    """Train one random module with and without a plan.

    Returns:
        None where plain PyTorch cannot train it.
    """
    torch._dynamo.reset()
    torch.manual_seed(seed)
    module = RandomModule(seed)
    inputs, draw = random_inputs(module, seed), random.Random(seed)
    twin, loss = copy.deepcopy(module), _loss_of(draw.randrange(3))
    make = draw.choice((_sgd, _adamw))
    try:
        expected = _train(lambda *args: loss(twin(*args)), twin, inputs, make)
    except RuntimeError:
        return None
    graph = memplan.capture(module, inputs, loss=loss, optimizer=make, profile="measured")
    least = memplan.solve(graph, budget="min", solver="greedy", time_limit=3.0)
    above = least.unplanned_peak_bytes - least.planned_peak_bytes
    budget_bytes = least.planned_peak_bytes + round(draw.random() ** 2 * max(0, above))
    optimized = memplan.compile(
        module,
        inputs,
        budget=budget_bytes,
        loss=loss,
        optimizer=make,
        solver=solver,
        profile="measured",
        time_limit=3.0,
    )
    actual = _train(optimized, module, inputs, make)
    measured_bytes = _measure(optimized, inputs, make)
    nodes = [*optimized.forward_graph.graph.nodes, *optimized.backward_graph.graph.nodes]
    return Trial(
        seed=seed,
        ops=len(graph.ops),
        unplanned_bytes=least.unplanned_peak_bytes,
        budget_bytes=budget_bytes,
        planned_bytes=optimized.plan.planned_peak_bytes,
        measured_bytes=measured_bytes,
        recomputed=sum("memplan_recompute" in node.meta for node in nodes),
        differs=tuple(name for name in expected if not _same(expected[name], actual.get(name))),
    )


def _outcome(seed: int, solver: str) -> str:
    try:
        trial = try_module(seed, solver)
    except Exception as error:
        return f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
    if trial is None:
        return "passed over"
    return "held" if trial.holds else f"failed: {trial}"


def _loss_of(kind: int) -> Callable[[Any], tuple[torch.Tensor, Any]]:
    """Return a loss of all outputs, or of the first alone, that hands the outputs on."""

    def loss(output: Any) -> tuple[torch.Tensor, Any]:
        leaves = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]
        wanted = [t for t in leaves if t.requires_grad][: 1 if kind == 0 else None]
        total = torch.stack([t.square().mean() for t in wanted]).sum()
        return total, output

    return loss


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def _train(
    step: Callable[..., Any],
    module: RandomModule,
    inputs: Sequence[torch.Tensor],
    make: Callable[[Any], torch.optim.Optimizer],
) -> dict[str, Any]:
    """Take steps on inputs that change, and return all that they leave, by name."""
    optimizer = make(list(module.parameters()))
    seen: dict[str, Any] = {}
    for number in range(STEPS):
        torch.manual_seed(number)
        given = [_changed(value, number) for value in inputs]
        loss, output = step(*given)
        for place, leaf in enumerate(pytree.tree_leaves((loss, output))):
            seen[f"step {number} output {place}"] = _copied(leaf)
        optimizer.zero_grad()
        loss.backward()
        for name, parameter in module.named_parameters():
            seen[f"step {number} gradient of {name}"] = _copied(parameter.grad)
        for place, value in enumerate(given):
            seen[f"step {number} input {place}"] = _copied(value)
            seen[f"step {number} gradient of input {place}"] = _copied(value.grad)
        optimizer.step()
    seen |= {name: _copied(value) for name, value in module.state_dict().items()}
    return seen | {"random state": torch.get_rng_state()}


def _measure(
    step: memplan.OptimizedModule,
    inputs: Sequence[torch.Tensor],
    make: Callable[[Any], torch.optim.Optimizer],
) -> int:
    """Return the peak of one step whose optimizer has its state already."""
    module = step.original
    optimizer = make(list(module.parameters()))
    given = [_changed(value, STEPS) for value in inputs]
    held: list[Any] = []

    def one() -> None:
        held.clear()
        held.append(step(*given))
        held[0][0].backward()
        optimizer.step()

    one()
    held.clear()
    module.zero_grad(set_to_none=True)
    for value in given:
        value.grad = None
    before_bytes = live_bytes(module, optimizer, given, getattr(module, "table", None))
    return before_bytes + measure_peak(one, warm_up=False)


def _changed(value: torch.Tensor, number: int) -> torch.Tensor:
    # Laid out as the given one: another layout is another step, with another least budget.
    made = value.detach().clone().copy_(value.detach().roll(number, 0))
    return made.requires_grad_(value.requires_grad)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _same(expected: Any, actual: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return bool(expected is actual or expected == actual)
    alike = (expected.dtype, expected.shape) == (actual.dtype, actual.shape)
    return alike and torch.equal(expected.nan_to_num(), actual.nan_to_num())


if __name__ == "__main__":
    raise SystemExit(main())
