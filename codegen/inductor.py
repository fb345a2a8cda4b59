"""Lowers the graphs of a plan through Inductor, by its hook for partitioners.

Inductor hands over the joint graph after its own passes and compiles the two graphs that come
back. It draws random numbers from seeds of its own, so that what is the same, bit by bit, is the
unplanned step under Inductor, not the one under plain PyTorch. It orders kernels itself: the
peak is the planned one only about, and has to be measured. The layouts that it chooses for
convolutions save time, and take copies that no plan knows of.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._inductor.exc import InvalidCxxCompiler

from memplan.codegen.operators import checkpoint, swap_out
from memplan.codegen.swap.places import SwapPlaces
from memplan.codegen.swap.store import numbered
from memplan.errors import UsageError

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


class Partitioner(CustomPartitionerFn):
    """Inductor's hook, answered by `partition`; its graphs move tensors to `swap`, if anywhere."""

    def __init__(self, partition: Partition, swap: SwapPlaces | None) -> None:
        self.partition, self.swap = partition, swap

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Return the forward and the backward graph."""
        forward, backward = self.partition(gm, joint_inputs, **kwargs)
        return self._for_inductor(forward), self._for_inductor(backward)

    def _for_inductor(self, module: fx.GraphModule) -> fx.GraphModule:
        module = without_marks(module)
        if self.swap is None:
            return module
        for node in module.graph.find_nodes(op="call_function", target=swap_out):
            source, tier = node.args
            node.args = (source, f"{tier}@{numbered(self.swap.stores)}")
        return module

    def uuid(self) -> None:
        """Return nothing, so that no step is taken from a cache that knows no plans."""
        return


def compile_by_inductor(
    module: fx.GraphModule,
    example_inputs: Sequence[torch.Tensor],
    partition: Partition,
    *,
    swap: SwapPlaces | None,
    own_layouts: bool,
) -> Callable[..., Any]:
    """Return what runs a graph of Dynamo's, split by `partition` and compiled by Inductor.

    Where tensors may be moved, kernels stay in the order of the graph, so that transfers start
    and end where the plan says, and memory is not used again for another tensor but given back:
    what has been read for the last time may be on its way out. Unless Inductor may choose
    its `own_layouts`, tensors keep those that were captured.

    Raises:
        UsageError: There is no C++ compiler.
    """
    with warnings.catch_warnings():
        # Torch's compiler comes by modules of torch that torch has deprecated, and takes a while.
        warnings.simplefilter("ignore")
        from torch._inductor.compile_fx import compile_fx
        from torch._inductor.cpp_builder import get_cpp_compiler
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise UsageError(
            "Inductor needs a C++ compiler and finds none; install g++, or leave it out"
        ) from None
    settings: dict[str, Any] = {
        "custom_partitioner_fn": Partitioner(partition, swap),
        "fx_graph_cache": False,
    }
    if not own_layouts:
        settings["layout_optimization"] = False
    if swap is not None:
        moving = ("reorder_for_peak_memory", "allow_buffer_reuse", "inplace_buffers")
        settings |= dict.fromkeys(moving, False)
    with functorch_config.patch(enable_autograd_cache=False):
        compiled: Any = compile_fx(module, example_inputs, config_patches=settings)
    run: Callable[..., Any] = compiled
    return run


def without_marks(module: fx.GraphModule) -> fx.GraphModule:
    """Return a copy without `memplan.checkpoint`, which to Inductor is a kernel like others."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node.target is checkpoint:
            copies[node] = copies[node.args[0]]
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].meta = dict(node.meta)
    graph.lint()
    return fx.GraphModule(module, graph, module.__class__.__name__)
