"""Greedy replays in which a tensor that was let go is read back or made again.

To the replay of `_replay`, reading back a tensor is one more op that makes it: it reads nothing
and takes as long as its price says. The price of a byte stands for the time of the lanes; what
the lanes really take is found by placing the transfers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from memplan.planner.moves import Move
from memplan.solvers._replay import Workload


def split(
    work: Workload, order: Sequence[int], tier: int = 0
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
