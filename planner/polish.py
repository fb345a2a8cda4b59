"""Improves a sequence locally: later recomputations, then fewer of them."""

from __future__ import annotations

from collections.abc import Sequence

from memplan.graph_capture.graph import Graph
from memplan.planner.prune import prune
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate


def polish(graph: Graph, sequence: Sequence[int], budget_bytes: int) -> tuple[int, ...]:
    """Return a sequence that takes no longer and stays within the budget.

    Recomputations that the budget does not need go. The others move to the last moment, which
    frees what they make for a while, so that more may go; until nothing changes.

    Args:
        graph: The step.
        sequence: Ops to run, repeats included; valid, and within the budget.
        budget_bytes: The peak that must not be passed.
    """
    best = prune(graph, sequence, budget_bytes)
    while True:
        later = delay(graph, best)
        if simulate(graph, schedule_of(graph, later)).peak_bytes > budget_bytes:
            return best
        shorter = prune(graph, later, budget_bytes)
        if len(shorter) == len(best):
            return best
        best = shorter


def delay(graph: Graph, sequence: Sequence[int]) -> tuple[int, ...]:
    """Return `sequence` with each recomputation right before the first op that reads it.

    One that nothing reads is left out. The peak may grow, as inputs have to stay for longer.
    """
    first_reader = _first_readers(graph, sequence)
    before: dict[int, list[int]] = {}
    order: list[int] = []
    for j in range(len(sequence) - 1, -1, -1):
        reader = first_reader[j]
        if reader is not None:
            before.setdefault(reader, []).append(j)
    seen: set[int] = set()
    moved: list[bool] = []
    for op in sequence:
        moved.append(op in seen)
        seen.add(op)

    def place(j: int) -> None:
        """Append step `j` after the moved steps that wait for it, the earliest first."""
        stack = [(j, False)]
        while stack:
            step, ready = stack.pop()
            if ready:
                order.append(sequence[step])
                continue
            stack.append((step, True))
            stack += [(earlier, False) for earlier in before.get(step, ()) if moved[earlier]]

    for j in range(len(sequence)):
        if not moved[j]:
            place(j)
    return tuple(order)


def _first_readers(graph: Graph, sequence: Sequence[int]) -> list[int | None]:
    """(steps,) the first step that reads what a step makes, before it is made again."""
    newest: dict[int, int] = {}
    found: list[int | None] = [None] * len(sequence)
    for j, op in enumerate(sequence):
        for t in graph.ops[op].inputs:
            made = newest.get(t)
            if made is not None and found[made] is None:
                found[made] = j
        for t in graph.ops[op].outputs:
            newest[t] = j
    return found
