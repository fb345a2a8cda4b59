"""What to change about a training step that fits a budget by no plan."""

from __future__ import annotations

from collections import Counter

from memplan.graph_capture.graph import Graph, Phase
from memplan.units import format_bytes

KIND_NAMES = {
    "param": "parameters",
    "buffer": "buffers",
    "input": "inputs",
    "optimizer_state": "optimizer state",
    "output": "outputs",
    "gradient": "gradients",
    "activation": "activations",
    "temporary": "temporaries",
    "update": "optimizer step",
    "rounding": "allocator rounding",
    "swap_buffers": "swap buffers",
}
"""What people call the kinds of tensors."""


def advice(graph: Graph, at: int, budget_bytes: int) -> str:
    """Return what would help most, or nothing for a graph without ops.

    Args:
        graph: The step.
        at: The op that needs the most in any schedule, as `lower_limit` finds it.
        budget_bytes: What it should fit.
    """
    if at < 0:
        return ""
    op, staying = graph.ops[at], pinned_by_kind(graph)
    held_bytes = sum(staying.values())
    if held_bytes > budget_bytes:
        return (
            f"{held_bytes_text(staying)} stay in any case: lower precision, an optimizer with "
            "less state or a larger device would help"
        )
    if op.phase is Phase.UPDATE and op.workspace_bytes:
        return (
            f"the optimizer's update takes {format_bytes(op.workspace_bytes)} for itself: "
            "fused=True takes none (--optimizer adamw-fused), foreach=False takes less"
        )
    return "a smaller batch or a shorter sequence would help"


def pinned_by_kind(graph: Graph) -> dict[str, int]:
    """Return bytes of the tensors that no plan may free, by kind, largest first."""
    pinned: Counter[str] = Counter()
    for tensor in graph.tensors:
        if tensor.pinned:
            pinned[tensor.kind.value] += tensor.nbytes
    return {kind: nbytes for kind, nbytes in pinned.most_common() if nbytes}


def held_bytes_text(staying: dict[str, int]) -> str:
    """Return `pinned_by_kind` as a phrase."""
    parts = [f"{KIND_NAMES[kind]} {format_bytes(nbytes)}" for kind, nbytes in staying.items()]
    return ", ".join(parts)
