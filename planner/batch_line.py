"""The step of a batch size that was not captured, on the line through two that were.

Bytes and times of a step are close to lines in the batch size: what depends on the batch grows
with it, parameters stay. It is a prediction: roundings of the allocator, launch times and kernels
that change with the size lie beside the line, so what it says is to be confirmed by a capture.
"""

from __future__ import annotations

from dataclasses import replace

from memplan.graph_capture.graph import Graph


def on_line(one: Graph, other: Graph, batches: tuple[int, int], batch: int) -> Graph | None:
    """Return the predicted step, or None where the two have different operations.

    Args:
        one: The step of the first batch size.
        other: The step of the second.
        batches: The two batch sizes.
        batch: The batch size that is asked for.
    """
    if one is other or batches[0] == batches[1] or not _alike(one, other):
        return None
    share = (batch - batches[0]) / (batches[1] - batches[0])

    def at(first: int, second: int) -> int:
        return max(0, round(first + share * (second - first)))

    tensors = tuple(
        replace(a, nbytes=at(a.nbytes, b.nbytes))
        for a, b in zip(one.tensors, other.tensors, strict=True)
    )
    ops = tuple(
        replace(
            a,
            time_ns=at(a.time_ns, b.time_ns),
            workspace_bytes=at(a.workspace_bytes, b.workspace_bytes),
        )
        for a, b in zip(one.ops, other.ops, strict=True)
    )
    return replace(one, tensors=tensors, ops=ops)


def _alike(one: Graph, other: Graph) -> bool:
    shapes = [
        ([t.kind for t in g.tensors], [(op.target, op.inputs, op.outputs) for op in g.ops])
        for g in (one, other)
    ]
    return shapes[0] == shapes[1]
