"""The backward pass where the caller's loss leaves some outputs of the step out.

AOTAutograd gives the backward graph zeros for an output that no gradient comes for, and so turns
gradients that plain PyTorch leaves None into zeros, or into NaN where the forward pass overflowed.
Here such a tangent arrives as None, and a graph runs from which all that depends on nothing else
is cut: what plain autograd would not run. It runs ops of the planned pass in their planned order,
and so within its peak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.debugging import boxed_nop

from memplan.graph_capture.fx_nodes import tensor_value
from memplan.graph_capture.phases import is_tangent

_COMPILED_NODE = "CompiledFunctionBackward"


def boxed_backward(graph: fx.GraphModule) -> Callable[..., Any]:
    """Return what runs a backward graph, given any of its tangents as None."""
    whole = boxed_nop(graph, [])
    tangents = [i for i, n in enumerate(graph.graph.find_nodes(op="placeholder")) if is_tangent(n)]
    partial: dict[tuple[int, ...], tuple[Callable[..., Any], tuple[int, ...]]] = {}

    def run(args: list[Any]) -> Any:
        absent = tuple(i for i in tangents if args[i] is None)
        if not absent:
            return whole(args)
        if absent not in partial:
            cut = without_tangents(graph, absent)
            partial[absent] = boxed_nop(cut, []), _unread(cut)
        run_cut, unread = partial[absent]
        for i in unread:
            # Generated code lets go of what it reads; the whole pass would let go of this.
            args[i] = None
        return run_cut(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def without_tangents(module: fx.GraphModule, absent: Sequence[int]) -> fx.GraphModule:
    """Return the backward graph for tangents that are None.

    Args:
        module: A backward graph; it is not changed.
        absent: Positions of the placeholders that are None.

    Returns:
        The graph with the same placeholders, in which outputs that depend on no other tangent
        are None. Where a remaining op reads a value that was cut, it reads zeros.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    live: set[fx.Node] = set()
    dead: set[fx.Node] = set()
    placeholders = module.graph.find_nodes(op="placeholder")
    missing = {placeholders[i] for i in absent}

    def value(node: fx.Node) -> fx.Node:
        return _zeros(graph, node) if node in dead else copies[node]

    for node in module.graph.nodes:
        sources = node.all_input_nodes
        if node.op == "output":
            results = node.args[0]
            assert isinstance(results, (tuple, list))
            kept = [None if r in dead else r for r in results]
            graph.output(tuple(fx.map_arg(kept, value)))
            continue
        cut = node in missing or any(s in dead for s in sources)
        if cut and not any(s in live for s in sources):
            dead.add(node)
            if node.op == "placeholder":
                graph.placeholder(node.name)
            continue
        if (is_tangent(node) and node not in missing) or any(s in live for s in sources):
            live.add(node)
        single = _only_summand(node, dead)
        copies[node] = copies[single] if single else graph.node_copy(node, value)
    graph.eliminate_dead_code()
    graph.lint()
    return fx.GraphModule(module, graph, "MemplanPartialBackward")


def pass_absent_gradients(outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Let the backward pass of one call see None where no gradient comes for an output.

    Args:
        outputs: What the compiled forward pass returned.
        inputs: What it was given; the search for its autograd node ends at theirs.
    """
    node = compiled_node(outputs, inputs)
    if node is not None:
        node.set_materialize_grads(False)


def compiled_node(outputs: Sequence[Any], inputs: Sequence[Any]) -> Any:
    """Return the autograd node that runs the planned backward pass of one call, if it has one.

    Args:
        outputs: What the compiled forward pass returned.
        inputs: What it was given; the search ends at their nodes.
    """
    seen = {id(t.grad_fn) for t in inputs if isinstance(t, torch.Tensor) and t.grad_fn}
    found: list[Any] = [t.grad_fn for t in outputs if isinstance(t, torch.Tensor)]
    while found:
        node = found.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.name() == _COMPILED_NODE:
            return node
        # An output that is a view of another is made again, by plain view ops, outside the graph.
        found.extend(source for source, _ in node.next_functions)
    return None


def _unread(graph: fx.GraphModule) -> tuple[int, ...]:
    """Return the positions of the placeholders that no op reads."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    return tuple(i for i, node in enumerate(placeholders) if not node.users)


def _only_summand(node: fx.Node, dead: set[fx.Node]) -> fx.Node | None:
    """Return the summand that is left of a sum of two alike; None for any other op."""
    if node.target is not torch.ops.aten.add.Tensor or len(node.args) != 2 or node.kwargs:
        return None
    kept = [s for s in node.args if isinstance(s, fx.Node) and s not in dead]
    if len(kept) != 1 or len(node.all_input_nodes) != 2:
        return None
    sum_, left = tensor_value(node), tensor_value(kept[0])
    if sum_ is None or left is None or (sum_.shape, sum_.dtype) != (left.shape, left.dtype):
        return None
    return kept[0]


def _zeros(graph: fx.Graph, node: fx.Node) -> fx.Node:
    like = tensor_value(node)
    if like is None:
        raise AssertionError(f"{node.name!r} is no single tensor")
    blank = graph.call_function(
        torch.ops.aten.empty_strided.default,
        (tuple(like.shape), tuple(like.stride())),
        {"dtype": like.dtype, "device": like.device},
    )
    return graph.call_function(torch.ops.aten.zero.default, (blank,))
