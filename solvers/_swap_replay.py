"""Greedy replays in which a tensor that was let go is read back or made again.

To the replay of `_replay`, reading back a tensor is one more op that makes it: it reads nothing
and takes as long as its price says. The price of a byte stands for the time of the lanes; what
the lanes really take is found by placing the transfers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from memplan.graph_capture.graph import Graph
from memplan.planner.moves import Move
from memplan.solvers._replay import Replay, Workload


class SwapWorkload(Workload):
    """A graph in which some tensors have a second way to be made.

    Attributes:
        reads: For each op beyond those of the graph, the tensor that it reads back.
    """

    def __init__(self, graph: Graph, price_ns: Mapping[int, int]) -> None:
        super().__init__(graph)
        self.reads: dict[int, int] = {}
        for t, price in sorted(price_ns.items()):
            op = len(self.time_ns)
            self.reads[op] = t
            self.producer[t] = op
            self.time_ns.append(price)
            self.recomputable.append(True)
            self.inputs.append(())
            self.outputs.append((t,))
            self.running_bytes.append(self.sizes[t])
            self.pinned_bytes.append(0)


class SwapReplay(Replay):
    """A replay that may read back what it let go."""

    work: SwapWorkload

    @property
    def _walked_ops(self) -> int:
        """The graph's own ops; reads run where they are needed."""
        return len(self.work.graph.ops)


def split(
    work: SwapWorkload, order: Sequence[int], tier: int = 0
) -> tuple[tuple[int, ...], list[Move]]:
    """Return the ops of a replay's order, and the moves that its reads stand for."""
    graph = work.graph
    sequence = tuple(op for op in order if op not in work.reads)
    last: dict[int, int] = {}
    waiting: set[int] = set()
    moves: list[Move] = []
    j = 0
    for op in order:
        if op in work.reads:
            waiting.add(work.reads[op])
            continue
        for t in graph.ops[op].inputs:
            if t in waiting:
                waiting.remove(t)
                if last[t] < j - 1:
                    moves.append(Move(tensor=t, out=last[t], back=j, tier=tier))
            last[t] = j
        for t in graph.ops[op].outputs:
            waiting.discard(t)
            last[t] = j
        j += 1
    return sequence, moves


def without_steps(
    sequence: Sequence[int], moves: Collection[Move], there: Sequence[bool]
) -> tuple[tuple[int, ...], list[Move]]:
    """Return sequence and moves with only the steps that are `there`.

    A move whose last or next reader is gone reaches to the one before or after.
    """
    place_of = [-1] * len(sequence)
    kept = [j for j, stays in enumerate(there) if stays]
    for new, j in enumerate(kept):
        place_of[j] = new
    shorter = tuple(sequence[j] for j in kept)
    moved = [
        Move(tensor=m.tensor, out=place_of[m.out], back=place_of[m.back], tier=m.tier)
        for m in moves
        if there[m.out] and there[m.back] and place_of[m.out] + 1 < place_of[m.back]
    ]
    return shorter, moved
