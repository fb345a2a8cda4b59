"""Reading single FX nodes: their arguments by name and their fake values."""

from __future__ import annotations

import torch
from torch import fx


def argument(node: fx.Node, name: str) -> object:
    """Return the argument of `node` that the operator's schema calls `name`, or None."""
    schema = getattr(node.target, "_schema", None)
    for position, slot in enumerate(schema.arguments if schema is not None else ()):
        if slot.name == name:
            if position < len(node.args):
                return node.args[position]
            return node.kwargs.get(name, slot.default_value)
    return None


def tensor_value(node: fx.Node) -> torch.Tensor | None:
    """Return the fake tensor that `node` computes, or None where it computes none or several."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def tensor_values(node: fx.Node) -> list[torch.Tensor | None]:
    """Return one fake tensor for each output slot of `node`; None where it is no tensor."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [v if isinstance(v, torch.Tensor) else None for v in values]
