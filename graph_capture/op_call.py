"""One operation with the shapes and values of its arguments, apart from any graph.

Profilers see nothing else. Two nodes of one graph, or of two models, that would do the same work
have the same `OpCall.key`, so that the work is timed once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from memplan.errors import ProfileError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a kernel can tell about a tensor without reading its values.

    Where it starts in its storage, and what else is in there, is left out: no kernel cares.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device_type: str = "cpu"

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """Describe a tensor: a real one, a fake one or one on the meta device."""
        shape = tuple(int(size) for size in tensor.shape)
        stride = tuple(int(step) for step in tensor.stride())
        return cls(shape, stride, tensor.dtype, tensor.device.type)

    @property
    def extent(self) -> int:
        """Elements from its first to its last one in memory, both included."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.stride, strict=True)
        return 1 + sum((size - 1) * stride for size, stride in steps)

    @property
    def touched_bytes(self) -> int:
        """Bytes of the distinct elements: an expanded dimension counts once."""
        steps = zip(self.shape, self.stride, strict=True)
        distinct = math.prod(size for size, stride in steps if stride or not size)
        return distinct * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}:{list(self.stride)}@{self.device_type}"


@dataclass(frozen=True)
class OpCall:
    """One call of an operation, every tensor replaced by its `TensorSpec`.

    Attributes:
        target: What the FX node calls: an operator overload, a higher-order operator, a function.
        args: Positional arguments; lists are tuples here.
        kwargs: Keyword arguments in the order of the node.
        outputs: The tensors that it returns, in order; None and numbers left out.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    outputs: tuple[TensorSpec, ...] = ()

    @property
    def name(self) -> str:
        """The target's name, such as `aten.mm.default`."""
        return _name_of(self.target)

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors among its arguments, in order, those inside lists included."""
        return tuple(_specs_in((self.args, self.kwargs)))

    @cached_property
    def key(self) -> str:
        """The same text for the same work, in every process."""
        named = ", ".join(f"{name}={_text(value)}" for name, value in self.kwargs)
        return f"{self.name}{_text(self.args)}{{{named}}}"

    @cached_property
    def inner(self) -> OpCall:
        """The call inside a wrapper such as `run_with_rng_state`; otherwise the call itself."""
        if isinstance(self.target, torch._ops.HigherOrderOperator):
            for i, value in enumerate(self.args):
                if isinstance(value, torch._ops.OpOverload):
                    return OpCall(value, self.args[i + 1 :], self.kwargs, self.outputs)
        return self


def op_call_of(node: torch.fx.Node) -> OpCall:
    """Describe what a `call_function` node does, from the `meta["val"]` of its arguments.

    Raises:
        ProfileError: The node calls no function, or an argument's shape is not known.
    """
    if node.op != "call_function" or not callable(node.target):
        raise ProfileError(f"node {node.name!r} is a {node.op}; only function calls have a cost")
    return OpCall(
        target=node.target,
        args=tuple(_describe(value, node) for value in node.args),
        kwargs=tuple((name, _describe(value, node)) for name, value in node.kwargs.items()),
        outputs=tuple(_specs_in(_describe_value(node.meta.get("val")))),
    )


def _describe(value: Any, node: torch.fx.Node) -> Any:
    """Replace the nodes in one argument of `node` by what they stand for."""
    if isinstance(value, torch.fx.Node):
        if "val" in value.meta:
            return _describe_value(value.meta["val"])
        if value.op == "get_attr":
            return _describe_value(_attribute(value))
        raise ProfileError(
            f"the shape of {value.name!r}, which {node.name!r} reads, is not known; "
            "trace the graph with fake tensors so that every node has meta['val']"
        )
    if isinstance(value, (list, tuple)):
        return tuple(_describe(item, node) for item in value)
    if isinstance(value, Mapping):
        return {name: _describe(item, node) for name, item in value.items()}
    return value


def _describe_value(value: Any) -> Any:
    """Replace the tensors in a value by their specs, symbolic numbers by their hints."""
    if isinstance(value, torch.Tensor):
        return TensorSpec.of(value)
    if isinstance(value, (list, tuple)):
        return tuple(_describe_value(item) for item in value)
    if isinstance(value, torch.SymInt):
        return int(value)
    return value


def _attribute(node: torch.fx.Node) -> Any:
    found: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def _specs_in(value: Any) -> Iterator[TensorSpec]:
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _specs_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _specs_in(item)


def _name_of(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return str(target._name)
    return f"{target.__module__}.{getattr(target, '__qualname__', type(target).__qualname__)}"


def _text(value: Any) -> str:
    """Write an argument so that equal ones, and only those, read the same in every process."""
    if isinstance(value, TensorSpec):
        return str(value)
    if isinstance(value, tuple):
        return f"({', '.join(_text(item) for item in value)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_text(item)}' for name, item in value.items())}}}"
    if isinstance(value, torch.fx.GraphModule):
        return f"graph {hashlib.sha256(value.code.encode()).hexdigest()[:16]}"
    if callable(value):
        return _name_of(value)
    return repr(value)
