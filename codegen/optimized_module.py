"""The module that `memplan.compile` returns: the user's model, run by its plan."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as module_hooks
from torch.utils import _pytree as pytree

from memplan.codegen.artifacts import save_step
from memplan.codegen.backend import Backend, NewlyTied, PlannedOnly, PlannedStep
from memplan.codegen.capture_errors import capture_error
from memplan.codegen.known_shapes import KnownShapes
from memplan.codegen.pickling import require_picklable
from memplan.codegen.step import step_function
from memplan.codegen.tracer_log import tracer_silenced, tracer_unwarned
from memplan.codegen.tracer_settings import tracer_settings
from memplan.errors import CaptureError, MemplanError, UsageError
from memplan.planner.plan import Plan

# The tracer neither runs these hooks nor notices them.
_GLOBAL_HOOKS = (
    module_hooks._global_forward_hooks,
    module_hooks._global_forward_pre_hooks,
    module_hooks._global_backward_hooks,
    module_hooks._global_backward_pre_hooks,
)

NO_BACKWARD = (
    "there is no backward pass to plan: nothing that the model returns depends on anything that "
    "requires a gradient, or gradients are switched off"
)


class OptimizedModule(nn.Module):
    """A model whose training step follows a plan.

    It shares parameters, buffers, sub-modules, hooks and mode with the model it was made from:
    their `state_dict` keys are the same, and an optimizer built for either trains both. What it
    does not have itself is read from and set on that model.

    Attributes:
        original: The model it was made from.
        step_loss: What a call returns of the model's output; None for the output itself.
    """

    original: nn.Module
    step_loss: Callable[..., Any] | None
    _backend: Backend
    _run: Callable[..., Any]
    _shapes: KnownShapes | None

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Any] | None,
        backend: Backend,
        shapes: KnownShapes | None = None,
    ) -> None:
        """Make `model` run by the plans of `backend`.

        Args:
            model: The user's module.
            loss: What a call returns of its output; None for the output itself.
            backend: Plans its steps.
            shapes: The input shapes that may come; None for any.

        Raises:
            UsageError: The loss cannot be called with the model's output.
        """
        super().__init__()
        for shared in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[shared] = model.__dict__[shared]
        self.__dict__["original"] = model
        self.__dict__["step_loss"] = loss
        self.__dict__["_backend"] = backend
        self.__dict__["_shapes"] = shapes
        self._compile_anew()

    def _compile_anew(self) -> None:
        """Forget what was captured; what it takes is captured again at the next call."""
        step = _with_own_code(step_function(self.original, self.step_loss))
        self.__dict__["_run"] = torch.compile(
            step, backend=self._backend, fullgraph=True, dynamic=False
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step; plan it first where its shapes or modes are new.

        Raises:
            CaptureError: The model cannot be traced as one graph for these inputs.
            InfeasibleBudget: No plan for these inputs fits the budget.
            UsageError: Hooks are registered on all modules at once, which a plan would not run;
                or the shapes of the inputs are new, and new shapes are refused.
        """
        _refuse_global_hooks()
        if self._shapes is not None:
            self._shapes.check((args, kwargs), learn=self._backend.plan_only)
        with tracer_settings(), tracer_silenced():
            self._backend.inputs = (*args, *kwargs.values())
            try:
                return self._run_as_tied(*args, **kwargs)
            except Exception as failure:
                error = capture_error(failure)
                if error is None:
                    raise
                raise error.with_traceback(None) from None
            finally:
                self._backend.inputs = ()

    def _run_as_tied(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._run(*args, **kwargs)
        except NewlyTied:
            self._compile_anew()
            return self._run(*args, **kwargs)

    def plan_for(self, *args: Any, **kwargs: Any) -> PlannedStep:
        """Capture and plan the step for these inputs without running it.

        Where new shapes are refused, those of these inputs may come from now on.

        Raises:
            CaptureError: The model cannot be traced, or nothing in it requires a gradient.
            InfeasibleBudget: No plan fits the budget.
        """
        planned = run_until_planned(self, args, kwargs)
        if planned is None:
            raise CaptureError(NO_BACKWARD)
        return planned

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
        self.original.train(mode)
        return self

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return self.original.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "original" in self.__dict__:
            self.original.training = mode

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["original"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in self.__dict__ or hasattr(type(self), name) or "_run" not in self.__dict__
        if own:
            super().__setattr__(name, value)
        else:
            setattr(self.original, name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        """Return a copy of the model that follows the same plans."""
        model = copy.deepcopy(self.original, memo)
        loss = copy.deepcopy(self.step_loss, memo)
        return OptimizedModule(
            model, loss, self._backend.fresh(), copy.deepcopy(self._shapes, memo)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model, its loss and its plans; graphs are captured again on first use.

        Raises:
            UsageError: The loss or the function that makes the optimizer cannot be pickled.
        """
        require_picklable("loss", self.step_loss)
        return OptimizedModule, (self.original, self.step_loss, self._backend, self._shapes)

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

    @property
    def swap_buffer_bytes(self) -> int:
        """Memory that transfers of swapped tensors hold for themselves, between steps too."""
        return self._backend.swap.buffer_bytes

    def _latest(self) -> PlannedStep:
        if not self._backend.steps:
            raise MemplanError("nothing is planned yet; call the module once with its inputs")
        return self._backend.steps[-1]


def run_until_planned(
    module: OptimizedModule, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> PlannedStep | None:
    """Do what a call does up to where the planned step would start, and return that step.

    Returns:
        None where there is no backward pass, so that there was nothing to plan.

    Raises:
        CaptureError: The model cannot be traced.
        InfeasibleBudget: No plan fits the budget.
    """
    module._backend.plan_only = True
    try:
        with _fake_mode_of(module, args, kwargs), tracer_unwarned():
            module.forward(*args, **kwargs)
    except PlannedOnly as reached:
        return reached.step
    finally:
        module._backend.plan_only = False
    return None


def _refuse_global_hooks() -> None:
    if any(hooks for hooks in _GLOBAL_HOOKS):
        raise UsageError(
            "hooks are registered on all modules at once (register_module_forward_hook and the "
            "like), which a planned step would not run; remove them, or hook the modules you mean"
        )


def _fake_mode_of(
    module: OptimizedModule, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AbstractContextManager[Any]:
    """Return the mode that a model without memory was made in: it is traced in the same one."""
    given = (*module.parameters(), *module.buffers(), *pytree.tree_leaves((args, dict(kwargs))))
    fake = next((value for value in given if isinstance(value, FakeTensor)), None)
    return nullcontext() if fake is None else fake.fake_mode


def _with_own_code(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy whose code object is new: Dynamo keeps its cache and limits by code object."""
    assert isinstance(step, types.FunctionType)
    copy = types.FunctionType(
        step.__code__.replace(), step.__globals__, step.__name__, None, step.__closure__
    )
    copy.__kwdefaults__ = step.__kwdefaults__
    return copy
