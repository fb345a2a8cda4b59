"""Keeps a planned module to the input shapes that it was planned for, where that is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch.utils import _pytree as pytree

from memplan.errors import UsageError

Shapes: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class KnownShapes:
    """The input shapes that were planned.

    Attributes:
        known: For each plan, the shapes of all tensors in its inputs, in order.
    """

    known: set[Shapes] = field(default_factory=set)

    def check(self, inputs: object, *, learn: bool) -> None:
        """Refuse inputs of other shapes, where their step would be planned.

        Args:
            inputs: What a call is given, in any containers.
            learn: Take their shapes as known instead.

        Raises:
            UsageError: The shapes are new, and gradients are on.
        """
        leaves = pytree.tree_leaves(inputs)
        shapes = tuple(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))
        if learn:
            self.known.add(shapes)
        elif torch.is_grad_enabled() and shapes not in self.known:
            raise UsageError(
                f"inputs of shapes {_listed(shapes)} were not planned, and new_shapes='refuse'; "
                f"pad them to {' or '.join(map(_listed, sorted(self.known)))}, or plan them "
                "first with the module's plan_for(inputs)"
            )


def _listed(shapes: Shapes) -> str:
    return ", ".join(str(list(shape)) for shape in shapes) or "none"
