"""The forward tensors that have to be saved for the backward pass, by a minimum cut.

Each forward tensor is an edge with its bytes as capacity; what is cut is saved. Flow starts at ops
that must not run again and ends at tensors that a backward op reads; in between it follows the
ops, whose outputs can be made only from all of their inputs. So the cut tensors are the cheapest
from which everything that the backward pass reads can be made by ops that may run again.
"""

from __future__ import annotations

from collections.abc import Collection

from memplan.graph_capture.graph import Graph

COMPUTE_INTENSIVE = (
    *("mm", "addmm", "bmm", "baddbmm", "convolution", "_grouped_mm", "_scaled_mm"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    *("_flash_attention_forward", "_efficient_attention_forward", "upsample_bilinear2d"),
)
"""Operators of ATen that are never worth a second run, as PyTorch's partitioner lists them."""


def is_compute_intensive(target: str) -> bool:
    """Return whether an op's target, such as `aten.mm.default`, is one of the above."""
    parts = target.split(".")
    return len(parts) > 1 and parts[1] in COMPUTE_INTENSIVE


def saved_by_min_cut(graph: Graph, end: int, once: Collection[int]) -> frozenset[int]:
    """Return the tensors to save.

    Args:
        graph: The step.
        end: Number of forward ops.
        once: Forward ops that must not run again.
    """
    from ortools.graph.python import max_flow

    network = _Network(graph, end, frozenset(once))
    flow = max_flow.SimpleMaxFlow()
    for start, stop, capacity in network.arcs:
        flow.add_arc_with_capacity(start, stop, capacity)
    if not network.arcs:
        return frozenset()
    status = flow.solve(network.source, network.sink)
    assert status == flow.OPTIMAL, f"the maximum flow ended with status {status}"
    # Of all minimum cuts the one nearest to the backward pass: it makes the least again.
    far = set(flow.get_sink_side_min_cut())
    return frozenset(t for t, (a, b) in network.edge.items() if b in far and a not in far)


class _Network:
    """The nodes by number, and (from, to, capacity) of the arcs."""

    def __init__(self, graph: Graph, end: int, once: frozenset[int]) -> None:
        self.source, self.sink = end, end + 1
        self.edge: dict[int, tuple[int, int]] = {}
        """For each forward tensor the two nodes that its capacity lies between."""
        self.arcs: list[tuple[int, int, int]] = []
        made = [t for op in graph.ops[:end] for t in op.outputs if not graph.tensors[t].pinned]
        for at, t in enumerate(made):
            self.edge[t] = (end + 2 + 2 * at, end + 3 + 2 * at)
        endless = 1 + sum(graph.tensors[t].nbytes for t in made)
        for i, op in enumerate(graph.ops[:end]):
            if i in once:
                self.arcs.append((self.source, i, endless))
            else:
                reads = [self.edge[t][1] for t in op.inputs if t in self.edge]
                self.arcs += [(node, i, endless) for node in reads]
            for t in op.outputs:
                if t not in self.edge:
                    continue
                before, after = self.edge[t]
                self.arcs.append((i, before, endless))
                self.arcs.append((before, after, graph.tensors[t].nbytes))
                if any(reader >= end for reader in graph.consumers[t]):
                    self.arcs.append((after, self.sink, endless))


def lost_without(graph: Graph, end: int, saved: Collection[int]) -> list[bool]:
    """For each tensor whether it can go after the forward pass because `saved` stay."""
    lost = [False] * len(graph.tensors)
    for op in graph.ops[:end]:
        for t in op.outputs:
            lost[t] = op.recomputable and t not in saved and not graph.tensors[t].pinned
    return lost
