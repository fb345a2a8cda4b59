"""Cuts the captured order of a step into windows, at places where few bytes are alive.

A forward cut is an op after which few bytes made by forward ops are read by the next forward ops:
in a transformer the residual stream, in a U-Net one tensor. What only rests, as the skips of a
U-Net do between encoder and decoder, does not count. A backward op
belongs to the cut at or before the last forward tensor that is still to be read: while the
backward pass moves back over the forward ops, each cut that it passes begins a new window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from memplan.graph_capture.graph import Graph
from memplan.planner.checkpoints import forward_end


def window_starts(graph: Graph, most_segments: int = 40) -> list[int]:
    """Return the first op of each window, in order; the first is 0.

    Args:
        graph: The step.
        most_segments: The forward ops are cut into this many windows at most; the backward ops
            into as many.
    """
    end = forward_end(graph)
    cuts = forward_cuts(graph, end, most_segments)
    starts = {0, end, *(cut + 1 for cut in cuts)}
    newest = _newest_read(graph, end)
    segment = [bisect_left(cuts, newest[i]) for i in range(end, len(graph.ops))]
    starts |= {end + q for q in range(1, len(segment)) if segment[q] != segment[q - 1]}
    return sorted(start for start in starts if start < max(1, len(graph.ops)))


def split_later(starts: Sequence[int], begin: int, ops: int, parts: int) -> list[int]:
    """Return `starts` with each window from op `begin` on divided into `parts` where it can be."""
    found = set(starts)
    for start, stop in pairwise([*starts, ops]):
        if start >= begin:
            count = min(parts, stop - start)
            found |= {start + (stop - start) * k // count for k in range(count)}
    return sorted(found)


def forward_cuts(graph: Graph, end: int, most_segments: int) -> list[int]:
    """Return the ops before `end` after which the order is cut, in order.

    The op with the fewest live bytes comes first, then the next one that is far enough from all
    cuts so far, as long as between two cuts more is alive than at them.
    """
    apart = max(4, -(-end // most_segments))
    live = _live_after(graph, end, 2 * apart)
    cuts: list[int] = []
    for p in sorted(range(apart - 1, end - 1), key=lambda p: (live[p], p)):
        at = bisect_left(cuts, p)
        left = cuts[at - 1] if at else -1
        right = cuts[at] if at < len(cuts) else end - 1
        if p - left < apart or right - p < apart:
            continue
        if max(live[left + 1 : p]) > live[p] < max(live[p + 1 : right + 1]):
            cuts.insert(at, p)
    return cuts


def _live_after(graph: Graph, end: int, soon: int) -> list[int]:
    """(end,) bytes made so far that one of the `soon` next forward ops reads, after each op."""
    change = [0] * (end + 1)
    for t, tensor in enumerate(graph.tensors):
        source = graph.producer[t]
        if tensor.pinned or source is None or source >= end:
            continue
        uses = [source, *(i for i in graph.consumers[t] if i < end)]
        for use, following in pairwise(uses):
            if following - use <= soon:
                change[use] += tensor.nbytes
                change[following] -= tensor.nbytes
    return list(accumulate(change[:end]))


def _newest_read(graph: Graph, end: int) -> list[int]:
    """(ops,) the last op before `end` whose freeable output this op or a later one reads."""
    newest, latest = [-1] * len(graph.ops), -1
    for i in range(len(graph.ops) - 1, end - 1, -1):
        for t in graph.ops[i].inputs:
            source = graph.producer[t]
            if source is not None and source < end and not graph.tensors[t].pinned:
                latest = max(latest, source)
        newest[i] = latest
    return newest


def window_of(starts: Sequence[int], ops: int) -> list[int]:
    """(ops,) the window of each op."""
    windows = []
    for w, start in enumerate(starts):
        stop = starts[w + 1] if w + 1 < len(starts) else ops
        windows += [w] * (stop - start)
    return windows
