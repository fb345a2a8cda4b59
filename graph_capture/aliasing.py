"""Which FX nodes share a storage, and which one owns it.

The schema of an operator decides: it says which outputs are views of which arguments. The fake
tensors of a traced graph are no safe witness, because their dispatch cache replays results of
some aliasing operators as fresh tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch import fx

from memplan.graph_capture.fx_nodes import argument

# Its schema says "fresh tensor", its kernel returns a view.
_UNDECLARED_VIEWS = frozenset({torch.ops.aten._unsafe_view.default})


def aliased_argument(node: fx.Node) -> fx.Node | None:
    """Return the node whose storage `node` returns a view of, or None if its storage is new.

    An operator that writes into an argument (`copy_`) counts as a view of that argument.
    """
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return aliased_argument(source)
    if node.target in _UNDECLARED_VIEWS:
        return _first_node(node.args[:1])
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    annotated = [slot.alias_info for slot in schema.returns if slot.alias_info is not None]
    returned = {alias for info in annotated for alias in info.before_set}
    # A list of views, as `split` returns, names its alias set on the list's elements only.
    any_set = any(not info.before_set for info in annotated)
    for slot in schema.arguments:
        if slot.alias_info is not None and (any_set or returned & slot.alias_info.before_set):
            return _first_node((argument(node, slot.name),))
    return None


def written_argument(node: fx.Node) -> fx.Node | None:
    """Return the argument that an in-place operator writes, or None."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return None
    for slot in schema.arguments:
        if slot.alias_info is not None and slot.alias_info.is_write:
            return _first_node((argument(node, slot.name),))
    return None


def owner_of(node: fx.Node) -> fx.Node:
    """Return the node that made the storage which `node` is a view of."""
    while (source := aliased_argument(node)) is not None:
        node = source
    return node


def _first_node(values: Iterable[object]) -> fx.Node | None:
    for value in values:
        if isinstance(value, fx.Node):
            return value
        if isinstance(value, (tuple, list)) and (found := _first_node(value)) is not None:
            return found
    return None
