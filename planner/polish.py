"""Improves a sequence locally: later recomputations, then fewer of them."""

from __future__ import annotations

from collections.abc import Sequence

from memplan.graph_capture.graph import Graph
from memplan.planner.prune import pruned
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.step_events import uses_of


def polish(graph: Graph, sequence: Sequence[int], budget_bytes: int) -> tuple[int, ...]:
    """Return a sequence that takes no longer and stays within the budget.

    Recomputations that the budget does not need go. The others move to the last moment, which
    frees what they make for a while, so that more may go; until nothing changes.

    Args:
        graph: The step.
        sequence: Ops to run, repeats included; valid, and within the budget.
        budget_bytes: The peak that must not be passed.
    """
    uses = uses_of(graph)
    best = pruned(uses, sequence, budget_bytes)
    while True:
        later = delay(graph, best)
        if simulate(graph, schedule_of(graph, later)).peak_bytes > budget_bytes:
            return best
        shorter = pruned(uses, later, budget_bytes)
        if len(shorter) == len(best):
            return best
        best = shorter


def delay(graph: Graph, sequence: Sequence[int]) -> tuple[int, ...]:
    """Return `sequence` with each recomputation right before the first op that reads it.

    One that nothing reads is left out. The peak may grow, as inputs have to stay for longer.
    """
    again = _runs_again(sequence)
    readers = _first_readers(graph, sequence, again)
    before: dict[int, list[int]] = {}
    """For each step the recomputations that move to it, the last first."""
    for j in range(len(sequence) - 1, -1, -1):
        reader = readers[j]
        if again[j] and reader is not None:
            before.setdefault(reader, []).append(j)
    order: list[int] = []
    for j in range(len(sequence)):
        stack = [] if again[j] else [(j, False)]
        while stack:
            step, ready = stack.pop()
            if ready:
                order.append(sequence[step])
            else:
                stack.append((step, True))
                stack += [(earlier, False) for earlier in before.get(step, ())]
    return tuple(order)


def _runs_again(sequence: Sequence[int]) -> list[bool]:
    """(steps,) whether the op of a step ran before."""
    seen: set[int] = set()
    again = []
    for op in sequence:
        again.append(op in seen)
        seen.add(op)
    return again


def _first_readers(
    graph: Graph, sequence: Sequence[int], again: Sequence[bool]
) -> list[int | None]:
    """(steps,) the first step that reads what a step makes; recomputations for nothing do not."""
    reader: dict[int, int] = {}
    """For each tensor the next step that reads it, going back."""
    found: list[int | None] = [None] * len(sequence)
    for j in range(len(sequence) - 1, -1, -1):
        op = graph.ops[sequence[j]]
        found[j] = min((reader.pop(t) for t in op.outputs if t in reader), default=None)
        if not again[j] or found[j] is not None:
            reader |= dict.fromkeys(op.inputs, j)
    return found
