"""Refuses tensors that are made of other tensors, such as DTensor or quantised weights.

The tracer takes them apart, so that the graph no longer tells which parameter is which, nor what
the step is given. Subclasses that hold their own values are tensors as any other.
"""

from __future__ import annotations

from torch import fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from memplan.errors import CaptureError
from memplan.graph_capture.module_path import dotted_name


def refuse_tensors_of_tensors(module: fx.GraphModule) -> None:
    """Name the first input of a graph of Dynamo's that is made of other tensors.

    Raises:
        CaptureError: There is one.
    """
    for node in module.graph.find_nodes(op="placeholder"):
        given = node.meta.get("grapharg")
        if given is not None and is_traceable_wrapper_subclass(given.example):
            raise CaptureError(
                f"{dotted_name(given.source.name)!r} is a {type(given.example).__name__}, which "
                "is made of other tensors, and a plan cannot count those; give plain tensors (of "
                "a DTensor, compile the model before it is distributed)"
            )
