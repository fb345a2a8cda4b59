"""Runs a step with and without its plan and compares what must be equal.

The unplanned step runs the same captured ops once each, in captured order: `keep-all`.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from memplan.codegen.backend import Backend
from memplan.codegen.optimized_module import OptimizedModule
from memplan.codegen.peak_meter import live_bytes, measure_peak
from memplan.graph_capture.joint import JointGraph
from memplan.planner.pipeline import make_plan
from memplan.planner.plan import Plan

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

_UNLIMITED_BYTES = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a planned step does beside the unplanned one.

    Attributes:
        planned_peak_bytes: What the plan promises.
        measured_peak_bytes: What the allocator saw over a whole step, optimizer included.
        unplanned_measured_peak_bytes: The same without the plan.
        step_time_ratio: Median time of a planned step over that of an unplanned one, steps of
            both kinds in turn.
        losses_identical: Whether the outputs of all steps are equal bit by bit.
        gradients_identical: Whether all gradients of all steps are.
        state_identical: Whether parameters, buffers and the random generator are after each.
        steps: How many steps were compared.
    """

    planned_peak_bytes: int
    measured_peak_bytes: int
    unplanned_measured_peak_bytes: int
    step_time_ratio: float
    losses_identical: bool
    gradients_identical: bool
    state_identical: bool
    steps: int

    @property
    def identical(self) -> bool:
        """Whether nothing that the user can see differs."""
        return self.losses_identical and self.gradients_identical and self.state_identical


def check(
    module: OptimizedModule,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: MakeOptimizer | None = None,
    steps: int = 3,
    timed_steps: int = 3,
) -> Check:
    """Run training steps with and without the plan from the same state and compare them.

    Parameters, buffers and the random generator are put back afterwards; gradients are cleared.

    Args:
        module: What `memplan.compile` returned, with a plan for these inputs.
        args: Positional inputs of the step.
        kwargs: Keyword inputs of the step.
        optimizer: Makes the optimizer of the step; None for plain gradients.
        steps: How many steps to compare. One alone begins with the optimizer's state in place,
            made by a step on zero gradients, so that its peak is that of a step later on.
        timed_steps: How many more of each kind to time; with none, the last compared ones count.
    """
    return check_each(
        [module], args, kwargs, optimizer=optimizer, steps=steps, timed_steps=timed_steps
    )[0]


def check_each(
    modules: Sequence[OptimizedModule],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: MakeOptimizer | None = None,
    steps: int = 3,
    timed_steps: int = 3,
) -> list[Check]:
    """Check several plans of one model against the same unplanned steps, as `check` does."""
    model = modules[0].original
    unplanned = OptimizedModule(model, modules[0].step_loss, Backend(_keep_all))
    unplanned.plan_for(*args, **(kwargs or {}))  # so that no step is timed with its capture
    start = _State.of(model)
    runs = [_Run(one, args, kwargs or {}, optimizer) for one in (unplanned, *modules)]
    for run in runs:
        start.restore(model)
        if steps == 1:
            run.make_optimizer_state(modules[0].steps[-1].joint.trained)
            start.restore(model)
        run.compare(steps)
    step_s = _median_step_s(runs, timed_steps)
    start.restore(model)
    before = runs[0]
    return [
        Check(
            planned_peak_bytes=module.plan.planned_peak_bytes,
            measured_peak_bytes=after.peak_bytes,
            unplanned_measured_peak_bytes=before.peak_bytes,
            step_time_ratio=after_s / step_s[0],
            losses_identical=before.outputs == after.outputs,
            gradients_identical=before.gradients == after.gradients,
            state_identical=before.states == after.states,
            steps=steps,
        )
        for module, after, after_s in zip(modules, runs[1:], step_s[1:], strict=True)
    ]


class _Run:
    """Training steps of one module, and the digests of what they leave."""

    def __init__(
        self,
        module: OptimizedModule,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        make_optimizer: MakeOptimizer | None,
    ) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.make_optimizer = make_optimizer
        self.optimizer: torch.optim.Optimizer | None = None
        self.output: Any = None
        self.outputs: list[str] = []
        self.gradients: list[str] = []
        self.states: list[str] = []
        self.peak_bytes = 0
        self.measured_s = 0.0

    def make_optimizer_state(self, trained: Collection[str]) -> None:
        """Let the optimizer take a step on zero gradients of the parameters named `trained`."""
        self._begin()
        if self.optimizer is None:
            return
        for name, parameter in self.module.original.named_parameters(remove_duplicate=False):
            if name in trained:
                parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        self.clear()

    def _begin(self) -> None:
        if self.optimizer is None and self.make_optimizer is not None:
            self.optimizer = self.make_optimizer(list(self.module.original.parameters()))

    def compare(self, steps: int) -> None:
        """Take `steps` steps and note what each leaves; measure the peak of the last.

        By then the optimizer has its state, if there is more than one step.
        """
        self._begin()
        parameters = list(self.module.original.parameters())
        held = (self.module.original, self.optimizer, self.args, self.kwargs)
        for left in reversed(range(steps)):
            if left:
                self.step()
            else:
                before_bytes, started = live_bytes(*held), time.perf_counter()
                before_bytes += self.module.swap_buffer_bytes
                self.peak_bytes = before_bytes + measure_peak(self.step, warm_up=False)
                self.measured_s = time.perf_counter() - started
            self.outputs.append(_digest(pytree.tree_leaves(self.output)))
            self.gradients.append(_digest(p.grad for p in parameters))
            buffers = self.module.original.buffers()
            self.states.append(_digest([*parameters, *buffers, torch.get_rng_state()]))
            self.clear()

    def step(self) -> None:
        """Take one training step; its output and gradients stay, as in a loop."""
        self.output = self.module(*self.args, **self.kwargs)
        scalar_of(self.output).backward()
        if self.optimizer is not None:
            self.optimizer.step()

    def clear(self) -> None:
        """Forget what the step left."""
        self.output = None
        self.module.original.zero_grad(set_to_none=True)


def _keep_all(joint: JointGraph) -> Plan:
    return make_plan(joint.graph, _UNLIMITED_BYTES, solver="keep-all")


def _median_step_s(runs: Sequence[_Run], rounds: int) -> list[float]:
    """Time `rounds` steps of each run, taking turns, and return the medians."""
    times_s: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, times in zip(runs, times_s, strict=True):
            started = time.perf_counter()
            run.step()
            times.append(time.perf_counter() - started)
            run.clear()
    return [
        statistics.median(times) if times else run.measured_s
        for run, times in zip(runs, times_s, strict=True)
    ]


def scalar_of(output: Any) -> torch.Tensor:
    """Return the loss; where the step has none, the sum of all outputs that have gradients."""
    leaves = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]
    differentiable = [t for t in leaves if t.requires_grad]
    if len(differentiable) == 1 and differentiable[0].numel() == 1:
        return differentiable[0]
    return torch.stack([t.float().sum() for t in differentiable]).sum()


def _digest(values: Iterable[Any]) -> str:
    """Return a hash of the bits of all tensors; None and numbers count too."""
    text = hashlib.blake2b()
    for value in values:
        if isinstance(value, torch.Tensor):
            flat = value.detach().cpu().contiguous().reshape(-1)
            text.update(f"{value.dtype}{tuple(value.shape)}".encode())
            text.update(flat.view(torch.uint8).numpy().data)
        else:
            text.update(repr(value).encode())
    return text.hexdigest()


@dataclass(frozen=True, slots=True)
class _State:
    """All that a training step changes outside its optimizer."""

    tensors: tuple[torch.Tensor, ...]
    random_state: torch.Tensor

    @classmethod
    def of(cls, model: nn.Module) -> _State:
        held = (*model.parameters(), *model.buffers())
        return cls(tuple(t.detach().clone() for t in held), torch.get_rng_state())

    def restore(self, model: nn.Module) -> None:
        with torch.no_grad():
            for tensor, saved in zip(
                (*model.parameters(), *model.buffers()), self.tensors, strict=True
            ):
                tensor.copy_(saved)
        torch.set_rng_state(self.random_state)
