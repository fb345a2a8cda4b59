"""Which nodes of a joint graph matter, and which pass they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from memplan.graph_capture.randomness import has_side_effect, is_random


def is_tangent(node: fx.Node) -> bool:
    """Whether the node is a placeholder for the gradient of a forward output."""
    return node.op == "placeholder" and "tangents" in node.name


def split_phases(nodes: Sequence[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
    """Split the calls at the first one of the backward pass; updates of inputs belong before.

    The tracer's tags alone do not tell: it tags what a custom backward function calls as forward.
    """
    forward: list[fx.Node] = []
    backward: list[fx.Node] = []
    after_tangents: set[fx.Node] = set()
    for node in nodes:
        if is_tangent(node) or any(n in after_tangents for n in node.all_input_nodes):
            after_tangents.add(node)
        if node.op != "call_function":
            continue
        tag = node.meta.get("partitioner_tag")
        started = bool(backward) or tag == "is_backward" or node in after_tangents
        later = started and (tag != "must_be_in_forward" or node in after_tangents)
        (backward if later else forward).append(node)
    return forward, backward


def needed_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that matter: all that outputs, random draws or side effects depend on."""
    roots = [
        n
        for n in graph.nodes
        if n.op == "output" or (n.op == "call_function" and (is_random(n) or has_side_effect(n)))
    ]
    needed: set[fx.Node] = set()
    while roots:
        node = roots.pop()
        if node not in needed:
            needed.add(node)
            roots.extend(node.all_input_nodes)
    return needed
