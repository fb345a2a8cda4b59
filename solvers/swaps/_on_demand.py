"""Moves that are chosen when an op has no room, as a cache does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from memplan.planner.moves import Move, live_bytes_of, movable_gaps
from memplan.planner.problem import Problem

Rule: TypeAlias = Callable[[Move], int]
"""What has the least value goes first."""


def least_recent(gap: Move) -> int:
    """What was used longest ago."""
    return gap.out


def farthest(gap: Move) -> int:
    """What is used last."""
    return -gap.back


def oldest(gap: Move) -> int:
    """What came first; of one step, the first by number."""
    return gap.tensor


def evict_on_demand(
    problem: Problem, rule: Rule, *, early: bool, sequence: Sequence[int] | None = None
) -> list[Move]:
    """Return the moves that a cache with this rule makes.

    Args:
        problem: The step and its budget.
        rule: Which of the tensors that the op does not need goes first.
        early: Whether a write starts after the last use, not when the room is needed.
        sequence: The ops to run; None for the captured order.
    """
    graph = problem.graph
    order = range(len(graph.ops)) if sequence is None else sequence
    room_bytes = problem.budget_bytes - problem.tiers[0].buffer_bytes
    live = live_bytes_of(graph, order)
    begin_at: dict[int, list[Move]] = {}
    for gap in movable_gaps(graph, order):
        begin_at.setdefault(gap.out + 1, []).append(gap)
    idle: set[Move] = set()
    moves: list[Move] = []
    for j in range(len(order)):
        idle.update(begin_at.get(j, ()))
        idle = {gap for gap in idle if gap.back > j}
        while live[j] > room_bytes and idle:
            gap = min(idle, key=lambda gap: (rule(gap), gap.tensor))
            idle.remove(gap)
            out = gap.out if early else j - 1
            moves.append(Move(tensor=gap.tensor, out=out, back=gap.back, tier=gap.tier))
            live[out + 1 : gap.back] -= graph.tensors[gap.tensor].nbytes
    return moves
