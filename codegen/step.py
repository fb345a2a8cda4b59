"""The function that a plan is made for: model and loss in one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from memplan.errors import UsageError


def step_function(model: nn.Module, loss: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return `step(*args, **kwargs)`: the model's output, or the loss where there is one.

    A loss is called with the model's output first. Where it requires more positional arguments,
    as `cross_entropy(output, target)` does, the last positional inputs of the step are for it
    and the model gets the others.

    Raises:
        UsageError: The loss takes no positional argument, or is no function or module whose
            arguments can be told.
    """
    if loss is None:

        def step(*args: Any, **kwargs: Any) -> Any:
            return model(*args, **kwargs)

        return step

    extra = _required_after_first(loss)

    def step_with_loss(*args: Any, **kwargs: Any) -> Any:
        split = len(args) - extra
        if split < 0 or not (split or kwargs):
            raise TypeError(
                f"the step is given {len(args)} input(s); the loss takes the last {extra}, which "
                "leaves none for the model"
            )
        return loss(model(*args[:split], **kwargs), *args[split:])

    return step_with_loss


def _required_after_first(loss: Callable[..., Any]) -> int:
    called = loss.forward if isinstance(loss, nn.Module) else loss
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if isinstance(loss, type):
        raise UsageError(f"the loss is a class; make one of it, as in loss={loss.__name__}()")
    try:
        parameters = inspect.signature(called).parameters.values()
    except ValueError:
        # Built-in functions such as torch.sum have none; they are given the output alone.
        return 0
    positional = [p for p in parameters if p.kind in kinds]
    if not positional:
        raise UsageError("the loss must take the model's output as its first argument")
    return sum(p.default is inspect.Parameter.empty for p in positional[1:])
