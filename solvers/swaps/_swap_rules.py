"""What the swap policies of the literature have in common.

Each says which tensors are away when (`Move`), and when transfers start (`Timing`); `place` makes
the schedule of it and `simulate` judges it. A policy is one or more such proposals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from memplan.graph_capture.graph import Graph
from memplan.planner.checkpoints import forward_end, sequence_keeping
from memplan.planner.limits import settled
from memplan.planner.moves import Move, Timing, movable_gaps, place
from memplan.planner.problem import Problem
from memplan.planner.schedule import Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.planner.verify import is_valid

_ON_TIME = Timing()
_HEAVY_TARGETS = ("convolution", "mm", "attention", "linear", "lstm", "gru")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One way to run the step.

    Attributes:
        moves: What is away when.
        timing: When transfers start.
        sequence: The ops to run; None for the captured order.
    """

    moves: Collection[Move]
    timing: Timing = _ON_TIME
    sequence: Sequence[int] | None = None


def without_swap(problem: Problem) -> Solution | None:
    """Return the answer where none has to be moved, or nothing can be."""
    if answer := settled(problem):
        return answer
    if problem.tiers:
        return None
    return Solution(
        status=Status.UNKNOWN,
        proven_bound_ns=problem.graph.time_ns,
        reason="there is no tier to move tensors to; name one with --swap",
    )


def solve_by(problem: Problem, proposals: Iterable[Proposal], *, first: bool = False) -> Solution:
    """Return the fastest of `proposals` that fits, or the first where `first` is set.

    Where none fits, the reason names the op without room.
    """
    best: Schedule | None = None
    best_ns = 0
    reason, missing_bytes, tried = "it proposes nothing", -1, 0
    for proposal in proposals:
        tried += 1
        order = range(len(problem.graph.ops)) if proposal.sequence is None else proposal.sequence
        placed = place(problem, order, proposal.moves, proposal.timing)
        if placed.schedule is None:
            if missing_bytes < 0 or placed.missing_bytes < missing_bytes:
                missing_bytes = placed.missing_bytes
                name = problem.graph.ops[order[placed.failed_step]].name
                reason = f"no room while {name!r} runs: {missing_bytes:,} bytes are missing"
            continue
        if not is_valid(problem, placed.schedule):
            reason = "a tier cannot hold what is moved to it"
            continue
        time_ns = simulate(problem.graph, placed.schedule, problem.tiers).time_ns
        if best is None or time_ns < best_ns:
            best, best_ns = placed.schedule, time_ns
        if first:
            break
    return solution_of(problem, best, reason, {"proposals": tried})


def solution_of(
    problem: Problem, schedule: Schedule | None, reason: str, stats: dict[str, float]
) -> Solution:
    """Return the solution with `schedule`, which is valid, or why there is none."""
    bound_ns = problem.graph.time_ns
    if schedule is None:
        return Solution(
            status=Status.UNKNOWN, proven_bound_ns=bound_ns, reason=reason, stats=stats
        )
    time_ns = simulate(problem.graph, schedule, problem.tiers).time_ns
    return Solution(
        status=Status.OPTIMAL if time_ns == bound_ns else Status.FEASIBLE,
        schedule=schedule,
        proven_bound_ns=bound_ns,
        stats=stats,
    )


def saved_gaps(graph: Graph, least_bytes: int = 0) -> list[Move]:
    """Return, in order, the gaps of the captured order from a forward op to a backward one."""
    end = forward_end(graph)
    gaps = movable_gaps(graph, range(len(graph.ops)), least_bytes)
    return [gap for gap in gaps if gap.out < end <= gap.back]


def heavy_ops(graph: Graph) -> frozenset[int]:
    """Return convolutions, matrix products and the like; without names, all above average."""
    named = frozenset(
        i for i, op in enumerate(graph.ops) if any(word in op.target for word in _HEAVY_TARGETS)
    )
    if named:
        return named
    mean_ns = graph.time_ns / max(1, len(graph.ops))
    return frozenset(i for i, op in enumerate(graph.ops) if op.time_ns > mean_ns)


def begins_ns(graph: Graph) -> list[int]:
    """(ops + 1,) when each op of the captured order begins, and when the last one ends."""
    times = [0]
    for op in graph.ops:
        times.append(times[-1] + op.time_ns)
    return times


def excess_bytes(problem: Problem) -> int:
    """Return by how much the step passes the budget if nothing is done."""
    graph = problem.graph
    plain = schedule_of(graph, range(len(graph.ops)))
    buffer_bytes = problem.tiers[0].buffer_bytes if problem.tiers else 0
    return simulate(graph, plain).peak_bytes + buffer_bytes - problem.budget_bytes


def read_by_heavy(graph: Graph) -> list[Move]:
    """Return the saved gaps of what heavy forward ops read."""
    end = forward_end(graph)
    read = {t for i in heavy_ops(graph) if i < end for t in graph.ops[i].inputs}
    return [gap for gap in saved_gaps(graph) if gap.tensor in read]


def first_covering(graph: Graph, gaps: Sequence[Move], nbytes: float) -> list[Move]:
    """Return the first of `gaps` that have `nbytes` together; all where they have less."""
    chosen: list[Move] = []
    for gap in gaps:
        if nbytes <= 0:
            break
        chosen.append(gap)
        nbytes -= graph.tensors[gap.tensor].nbytes
    return chosen


def kept_but(
    graph: Graph, made_again: frozenset[int], moved: frozenset[int]
) -> tuple[tuple[int, ...], list[Move]]:
    """Return ops and moves if forward tensors stay, but those made again or moved.

    What is made again is recomputed where the backward pass first needs it.
    """
    end = forward_end(graph)
    lost = {graph.producer[t] for t in made_again}
    kept = [i for i in range(end) if i not in lost]
    sequence = sequence_keeping(graph, frozenset(kept), end) if lost else range(len(graph.ops))
    gaps = movable_gaps(graph, sequence)
    moves = [gap for gap in gaps if gap.tensor in moved and gap.out < end <= gap.back]
    return tuple(sequence), moves
