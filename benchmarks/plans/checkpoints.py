"""What `torch.utils.checkpoint` around every block costs, on a captured graph."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memplan.graph_capture.graph import Graph


def blocks_of(graph: Graph, pattern: str) -> dict[str, list[int]]:
    """Return the forward ops of each block, in captured order.

    Args:
        graph: The step.
        pattern: Regular expression for the beginning of a module path; one block for each path.
    """
    wanted = re.compile(rf"({pattern})(?:\.|$)")
    blocks: dict[str, list[int]] = {}
    for i, op in enumerate(graph.ops[: graph.boundary]):
        if found := wanted.match(op.module):
            blocks.setdefault(found[1], []).append(i)
    return blocks


def checkpointed(graph: Graph, blocks: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the ops to run with a checkpoint around each block.

    Of a block only what it reads stays, and what is read outside it. When the backward phase
    first reads something that was made inside, the block runs again, up to the last op whose
    result the backward phase reads, where PyTorch stops too.
    """
    block_of = {i: k for k, block in enumerate(blocks) for i in block}
    again = [_runs_again(graph, block) for block in blocks]
    order: list[int] = []
    done: set[int] = set()
    for i, op in enumerate(graph.ops):
        for t in op.inputs if i >= graph.boundary else ():
            source = graph.producer[t]
            if source is None or source not in block_of or graph.tensors[t].pinned:
                continue
            k = block_of[source]
            if k not in done:
                done.add(k)
                order += again[k]
        order.append(i)
    return tuple(order)


def _runs_again(graph: Graph, block: Sequence[int]) -> list[int]:
    saved = [
        i
        for i in block
        if any(
            graph.consumers[t] and graph.consumers[t][-1] >= graph.boundary
            for t in graph.ops[i].outputs
            if not graph.tensors[t].pinned
        )
    ]
    last = max(saved, default=-1)
    return [i for i in block if i <= last and graph.ops[i].recomputable]
