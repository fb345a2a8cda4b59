"""A training step as a chain of stages: what the chain methods of the literature work on.

The forward pass is cut wherever no more than one tensor crosses. Stage l is what lies between two
cuts; the tensor that crosses is the output of the stage before, and the input of the stage
after. Each stage has a window of the backward pass, in captured order, the last stage's first: at
the end of the window of stage l no later op reads what stage l made, nor its input.

Some tensors are no decision of a chain method and stay from their first run to their last use:
those that are pinned, that cannot be made again, that end up in a buffer (running statistics,
which are written after the forward pass), or that are shared, which means that at least four ops
all over the forward pass read them (an attention mask).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

from memplan.graph_capture.graph import Graph, Op
from memplan.planner.checkpoints import forward_end

_SHARED_READERS = 4
_LARGEST_STAGE = 0.8
"""The largest share of the forward ops that one stage may have."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The stages of a graph, from 0 on.

    Attributes:
        graph: The step.
        end: Number of forward ops.
        forward: For each stage its forward ops; together all of them, in order.
        backward: For each stage its window of the backward pass.
        boundary: For each stage its output, None for the last stage or where nothing crosses.
        movable: For each tensor whether it is a decision.
        stage: For each movable tensor the stage that makes it, else -1.
        saved: For each stage the movable tensors that it makes and that the backward pass reads,
            without its output.
    """

    graph: Graph
    end: int
    forward: tuple[tuple[int, ...], ...]
    backward: tuple[tuple[int, ...], ...]
    boundary: tuple[int | None, ...]
    movable: tuple[bool, ...]
    stage: tuple[int, ...]
    saved: tuple[frozenset[int], ...]

    def __len__(self) -> int:
        return len(self.forward)

    def input_of(self, stage: int) -> int | None:
        """Return the tensor that `stage` starts from."""
        return self.boundary[stage - 1] if stage else None

    def bytes_of(self, tensors: frozenset[int] | tuple[int, ...]) -> int:
        """Return the bytes of some tensors together."""
        return sum(self.graph.tensors[t].nbytes for t in tensors)


def chain_of(graph: Graph, most_stages: int = 100) -> Chain | str:
    """Return the graph as a chain, or in one line why it is none.

    Args:
        graph: The step.
        most_stages: Where there are more, neighbours are merged.
    """
    end = forward_end(graph)
    if end == len(graph.ops):
        return "no chain: the step has no backward ops"
    movable = _movable(graph, end)
    cuts, crossing = _cuts(graph, end, movable)
    if not cuts:
        return f"no chain: at least {crossing} tensors cross every place in the forward pass"
    chain = _chain(graph, end, movable, cuts)
    while wrong := _misplaced(chain):
        cuts = [cut for number, cut in enumerate(cuts) if number not in wrong]
        chain = _chain(graph, end, movable, cuts)
    if not cuts:
        return "no chain: the backward pass reads across every cut of the forward pass"
    largest = max(map(len, chain.forward))
    if largest > _LARGEST_STAGE * end:
        return f"no chain: {largest} of {end} forward ops lie between two neighbouring cuts"
    if len(cuts) < most_stages:
        return chain
    step = -(-len(cuts) // max(1, most_stages - 1))
    return _chain(graph, end, movable, cuts[step - 1 :: step])


def ops_between(chain: Chain, there: Collection[int], wanted: Iterable[int]) -> tuple[int, ...]:
    """Return the ops that make the movable tensors `wanted` from those `there`, in order."""
    graph, needed = chain.graph, set()
    stack = [t for t in wanted if chain.movable[t] and t not in there]
    while stack:
        source = graph.producer[stack.pop()]
        assert source is not None
        if source not in needed:
            needed.add(source)
            reads = graph.ops[source].inputs
            stack += [t for t in reads if chain.movable[t] and t not in there]
    return tuple(sorted(needed))


def _movable(graph: Graph, end: int) -> list[bool]:
    movable = [False] * len(graph.tensors)
    for i, op in enumerate(graph.ops[:end]):
        for t in op.outputs:
            tensor, readers = graph.tensors[t], graph.consumers[t]
            forward = [r for r in readers if r < end]
            shared = len(forward) >= _SHARED_READERS and 2 * (forward[-1] - i) > end
            decided = not tensor.pinned and tensor.nbytes > 0 and bool(readers)
            noted = any(_only_writes(graph.ops[r]) for r in forward)
            movable[t] = decided and op.recomputable and not shared and not noted
    return movable


def _only_writes(op: Op) -> bool:
    """Whether an op makes nothing, but writes into what the step is given."""
    return not op.outputs and not op.recomputable


def _cuts(graph: Graph, end: int, movable: list[bool]) -> tuple[list[tuple[int, int]], int]:
    """Return (last op before the cut, tensor that crosses) for each cut; the fewest to cross."""
    leaves: dict[int, list[int]] = {}
    alive: set[int] = set()
    cuts: list[tuple[int, int]] = []
    fewest = len(graph.tensors)
    for i, op in enumerate(graph.ops[: end - 1]):
        alive.difference_update(leaves.pop(i, ()))
        for t in op.outputs:
            last = max((r for r in graph.consumers[t] if r < end), default=-1)
            if movable[t] and last > i:
                alive.add(t)
                leaves.setdefault(last, []).append(t)
        crossing = alive.difference(leaves.get(i, ()))
        fewest = min(fewest, len(crossing) or fewest)
        if len(crossing) == 1:
            (only,) = crossing
            if not cuts or cuts[-1][1] != only:
                cuts.append((i, only))
    return cuts, fewest


def _chain(graph: Graph, end: int, movable: list[bool], cuts: list[tuple[int, int]]) -> Chain:
    ends = [0, *(i + 1 for i, _ in cuts), end]
    forward = tuple(tuple(range(*bounds)) for bounds in pairwise(ends))
    boundary: tuple[int | None, ...] = (*(t for _, t in cuts), None)
    stage = [-1] * len(graph.tensors)
    for number, ops in enumerate(forward):
        for i in ops:
            for t in graph.ops[i].outputs:
                stage[t] = number if movable[t] else -1
    read = {t for op in graph.ops[end:] for t in op.inputs}
    saved = tuple(
        frozenset(t for t in read if stage[t] == number and t != boundary[number])
        for number in range(len(forward))
    )
    return Chain(
        graph=graph,
        end=end,
        forward=forward,
        backward=tuple(map(tuple, _windows(graph, end, stage, boundary))),
        boundary=boundary,
        movable=tuple(movable),
        stage=tuple(stage),
        saved=saved,
    )


def _misplaced(chain: Chain) -> set[int]:
    """Return the cuts, by the stage before them, that a window looks back across.

    A window may read what its own stage made, and that stage's input. A last stage without any
    window belongs to the stage before.
    """
    wrong: set[int] = set()
    for stage, ops in enumerate(chain.backward):
        for t in {t for b in ops for t in chain.graph.ops[b].inputs if chain.movable[t]}:
            if t != chain.input_of(stage):
                made = chain.stage[t]
                wrong.update(range(made + (t == chain.boundary[made]), stage))
    if len(chain) > 1 and not chain.backward[-1]:
        wrong.add(len(chain) - 2)
    return wrong


def _windows(
    graph: Graph, end: int, stage: list[int], boundary: tuple[int | None, ...]
) -> list[list[int]]:
    """Return for each stage its backward ops.

    The output of stage l is there as long as stage l + 1 may run again, so its readers belong to
    the window of stage l + 1.
    """
    windows: list[list[int]] = [[] for _ in boundary]
    outputs = set(boundary)
    window = 0
    for b in range(len(graph.ops) - 1, end - 1, -1):
        for t in graph.ops[b].inputs:
            if stage[t] >= 0:
                window = max(window, stage[t] + (t in outputs))
        windows[window].insert(0, b)
    return windows
