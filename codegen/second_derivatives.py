"""Refuses derivatives of planned gradients: a plan has one backward pass.

Torch refuses them too, where the gradients are differentiated, in words that name its compiler and
no way out. Gradients that are taken with `create_graph=True` and not differentiated are as ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from memplan.codegen.partial_backward import compiled_node
from memplan.errors import NoSecondBackward


def refuse_second_derivatives(outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Have the gradients of one call refuse to be differentiated, in words of ours.

    Args:
        outputs: What the compiled forward pass returned.
        inputs: What it was given.
    """
    node = compiled_node(outputs, inputs)
    if node is None:
        return

    # Held by itself, the node would keep what it saved until Python looks for cycles.
    held = weakref.ref(node)

    def before_backward(_gradients: Any) -> None:
        running = held()
        # A hook after the pass holds its gradients longer, so it is there where it is needed.
        if torch.is_grad_enabled() and running is not None:
            running.register_hook(_guard)

    node.register_prehook(before_backward)


def _guard(gradients: Sequence[Any], _given: object) -> None:
    for made in gradients:
        if isinstance(made, torch.Tensor) and made.grad_fn is not None:
            made.grad_fn.register_prehook(_refuse)


def _refuse(_gradients: object) -> None:
    raise NoSecondBackward(
        "a gradient that was taken with create_graph=True is differentiated, and a planned step "
        "has no second backward pass; call the `original` of the planned module in that step"
    )
