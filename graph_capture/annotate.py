"""Puts costs and the bytes outside the FX graph into a captured graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from torch import fx

from memplan.graph_capture.device import Device
from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.graph_capture.op_call import op_call_of
from memplan.graph_capture.optimizer_state import OptimizerFootprint
from memplan.graph_capture.profile import OpCost, Profiler, Progress

OPTIMIZER_STEP = "memplan.optimizer_step"


def with_costs(
    graph: Graph,
    nodes: Sequence[fx.Node | None],
    profiler: Profiler,
    progress: Progress | None = None,
) -> Graph:
    """Return `graph` with the costs of every op that an FX node stands for.

    Args:
        graph: As `read_joint` returns it.
        nodes: For each op, its FX node or None.
        profiler: Prices the operations.
        progress: Told how many are done.

    Raises:
        ProfileError: An operation can be neither run nor priced.
    """
    calls = {i: op_call_of(node) for i, node in enumerate(nodes) if node is not None}
    costs = dict(zip(calls, profiler.profile(list(calls.values()), progress), strict=True))
    ops = tuple(_priced(op, costs[i]) if i in costs else op for i, op in enumerate(graph.ops))
    tensors = list(graph.tensors)
    for i, cost in costs.items():
        for t in graph.ops[i].outputs[:1]:
            nbytes = tensors[t].nbytes + cost.retained_bytes
            tensors[t] = replace(tensors[t], nbytes=nbytes)
    return replace(graph, ops=ops, tensors=tuple(tensors))


def _priced(op: Op, cost: OpCost) -> Op:
    workspace_bytes = op.workspace_bytes + cost.workspace_bytes
    return replace(op, time_ns=cost.time_ns, workspace_bytes=workspace_bytes)


def with_alignment(graph: Graph, device: Device) -> Graph:
    """Return `graph` with every size rounded up as the device's allocator does."""
    step = device.alignment_bytes
    if step <= 1:
        return graph
    rounded = (replace(t, nbytes=-(-t.nbytes // step) * step) for t in graph.tensors)
    return replace(graph, tensors=tuple(rounded))


def with_unused_state(graph: Graph, unused: Mapping[str, tuple[Kind, int]]) -> Graph:
    """Return `graph` with parameters and buffers that the step does not read but the model has.

    Args:
        graph: The captured graph.
        unused: Kind and bytes by name.
    """
    extra = tuple(Tensor(name=n, kind=kind, nbytes=b) for n, (kind, b) in unused.items())
    return replace(graph, tensors=graph.tensors + extra)


def with_optimizer(graph: Graph, footprint: OptimizerFootprint) -> Graph:
    """Return `graph` with the optimizer's state and, as its last op, the optimizer's step.

    The step reads all gradients, so that they and its workspace count towards the peak.
    """
    gradients = tuple(i for i, t in enumerate(graph.tensors) if t.kind is Kind.GRADIENT)
    state = Tensor(name="optimizer_state", kind=Kind.OPTIMIZER_STATE, nbytes=footprint.state_bytes)
    step = Op(
        name="optimizer_step",
        target=OPTIMIZER_STEP,
        inputs=(*gradients, len(graph.tensors)),
        outputs=(),
        phase=Phase.UPDATE,
        workspace_bytes=footprint.workspace_bytes,
        recomputable=False,
        in_order=True,
    )
    return replace(graph, ops=(*graph.ops, step), tensors=(*graph.tensors, state))


def with_provenance(graph: Graph, **facts: str) -> Graph:
    """Return `graph` with more facts about where it comes from."""
    return replace(graph, provenance=MappingProxyType({**graph.provenance, **facts}))
