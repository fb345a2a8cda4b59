"""The module that `memplan.compile` returns: the user's model, run by its plan."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from memplan.codegen.artifacts import save_step
from memplan.codegen.backend import Backend, PlannedOnly, PlannedStep
from memplan.errors import CaptureError, MemplanError
from memplan.planner.plan import Plan

# Each new input shape is one more entry in Dynamo's cache, and one more plan.
_MOST_PLANS = 64


class OptimizedModule(nn.Module):
    """A model whose training step follows a plan.

    It shares parameters, buffers, sub-modules, hooks and mode with the model it was made from:
    their `state_dict` keys are the same, and an optimizer built for either trains both.

    Attributes:
        model: The model it was made from.
        step: What it runs: the model, then the loss where there is one.
    """

    model: nn.Module
    step: Callable[..., Any]
    _backend: Backend
    _run: Callable[..., Any]

    def __init__(self, model: nn.Module, step: Callable[..., Any], backend: Backend) -> None:
        super().__init__()
        for shared in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[shared] = model.__dict__[shared]
        self.__dict__["model"] = model
        self.__dict__["step"] = step
        self.__dict__["_backend"] = backend
        self.__dict__["_run"] = torch.compile(
            _with_own_code(step), backend=backend, fullgraph=True, dynamic=False
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step; plan it first where its shapes or modes are new.

        Raises:
            CaptureError: The model cannot be traced as one graph for these inputs.
            InfeasibleBudget: No plan for these inputs fits the budget.
        """
        with torch._dynamo.config.patch(recompile_limit=_MOST_PLANS):
            try:
                return self._run(*args, **kwargs)
            except torch._dynamo.exc.BackendCompilerFailed as failure:
                raise _cause(failure) from failure.__cause__
            except torch._dynamo.exc.TorchDynamoException as failure:
                raise CaptureError(_explain(failure)) from failure

    def plan_for(self, *args: Any, **kwargs: Any) -> PlannedStep:
        """Capture and plan the step for these inputs without running it.

        Raises:
            CaptureError: The model cannot be traced, or nothing in it requires a gradient.
            InfeasibleBudget: No plan fits the budget.
        """
        self.capture(*args, **kwargs)
        return self._latest()

    def capture(self, *args: Any, **kwargs: Any) -> None:
        """Have the backend see the step for these inputs, without running it.

        Raises:
            CaptureError: The model cannot be traced, or nothing in it requires a gradient.
        """
        captured = self._backend.captured
        self._backend.plan_only = True
        try:
            self(*args, **kwargs)
        except PlannedOnly:
            pass
        finally:
            self._backend.plan_only = False
        if self._backend.captured == captured:
            raise CaptureError(
                "there is no backward pass to plan: nothing that the model returns depends on "
                "anything that requires a gradient, or gradients are switched off"
            )

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """What was planned so far, one entry for each kind of input."""
        return tuple(self._backend.steps)

    @property
    def forward_graph(self) -> fx.GraphModule:
        """The forward graph of the latest plan."""
        return self._latest().graphs.forward

    @property
    def backward_graph(self) -> fx.GraphModule:
        """The backward graph of the latest plan."""
        return self._latest().graphs.backward

    def train(self, mode: bool = True) -> OptimizedModule:
        """Set the mode of the shared model."""
        self.model.train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["model"], name)

    def save(self, folder: str | Path) -> Path:
        """Write the latest plan and its code to a folder, for `memplan.load`.

        Raises:
            MemplanError: Nothing is planned yet.
            UsageError: The folder cannot be written to.
        """
        return save_step(self._latest(), folder)

    @property
    def plan(self) -> Plan:
        """The latest plan."""
        return self._latest().plan

    def _latest(self) -> PlannedStep:
        if not self._backend.steps:
            raise MemplanError("nothing is planned yet; call the module once with its inputs")
        return self._backend.steps[-1]


def _with_own_code(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy whose code object is new: Dynamo keeps its cache and limits by code object."""
    assert isinstance(step, types.FunctionType)
    copy = types.FunctionType(
        step.__code__.replace(), step.__globals__, step.__name__, None, step.__closure__
    )
    copy.__kwdefaults__ = step.__kwdefaults__
    return copy


def _cause(failure: torch._dynamo.exc.BackendCompilerFailed) -> MemplanError:
    inner = failure.inner_exception
    return inner if isinstance(inner, MemplanError) else CaptureError(_first_line(inner))


def _explain(failure: torch._dynamo.exc.TorchDynamoException) -> str:
    return f"the model cannot be captured as one graph: {_first_line(failure)}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
