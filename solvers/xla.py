"""Block rematerialization as XLA does it: bytes count, time does not.

Source: OpenXLA, `hlo_rematerialization.cc`: `RematerializeComputation` and
    `MemoryUsageTracker::PickRematerializationCandidates`, the strategy kRecompute.
Deviations: Blocks are runs of ops placed one after the other, as there, and the block with the
    least `limit / bytes freed` wins. A block's copy goes before the first reader that has not been
    placed yet. Sizes of blocks double from 1 up to `most_ops` until one frees enough. Where the
    scan ends above the budget it is repeated on its own result. Layout compression and host
    offload are left out.
Exact?: No. OPTIMAL only where nothing is recomputed.
Complexity: O(ops x placed ops x block).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from memplan.graph_capture.graph import Graph
from memplan.planner.cheapest import cheapest_within
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Compute, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status


@dataclass(frozen=True, slots=True)
class Xla:
    """A scan that puts copies of blocks before their next readers.

    Attributes:
        most_ops: The most ops of a block.
        most_copies: Give up after this many copied blocks for each op of the graph.
    """

    name: ClassVar[str] = "xla"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "OpenXLA's HloRematerialization: recompute blocks, bytes only"

    most_ops: int = 16
    most_copies: int = 4

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return what is left of the scan if it fits."""
        if answer := settled(problem):
            return answer
        deadline = time.monotonic() + limits.time_s
        scan = _Scan(problem, self.most_ops, deadline)
        sequence = scan.run(self.most_copies * len(problem.graph.ops))
        if sequence is None:
            return Solution(
                status=Status.UNKNOWN,
                proven_bound_ns=problem.graph.time_ns,
                reason=f"no block frees anything after {scan.copies} copies, or time is over",
                stats={"blocks": scan.copies},
            )
        return cheapest_within(problem, [sequence])


class _Scan:
    """The sequence so far. Instances are made by positions of the sequence."""

    def __init__(self, problem: Problem, most_ops: int, deadline: float) -> None:
        self.graph, self.budget_bytes = problem.graph, problem.budget_bytes
        self.most_ops, self.deadline = most_ops, deadline
        self.sequence = list(range(len(self.graph.ops)))
        self.copies = 0

    def run(self, most_copies: int) -> tuple[int, ...] | None:
        """Copy blocks until the peak is within the budget."""
        while True:
            live = live_bytes(self.graph, self.sequence)
            over = next((j for j, b in enumerate(live) if b > self.budget_bytes), None)
            if over is None:
                return tuple(self.sequence)
            if self.copies >= most_copies or time.monotonic() > self.deadline:
                return None
            if not self._free_at(over, live[over] - self.budget_bytes):
                return None
            self.copies += 1

    def _free_at(self, j: int, over_bytes: int) -> bool:
        """Copy the best block before `j`; False where none frees anything."""
        idle = self._idle_at(j)
        size = 1
        best: tuple[float, int, tuple[int, ...], int] | None = None
        while size <= self.most_ops:
            for start in range(j):
                block = self._block(start, size, j, idle)
                if block is None:
                    continue
                freed, ops, before = block
                if best is None or (1.0 / freed, len(ops)) < best[:2]:
                    best = (1.0 / freed, len(ops), ops, before)
            if best is not None and 1.0 / best[0] >= over_bytes:
                break
            size *= 2
        if best is None:
            return False
        _, _, ops, before = best
        self.sequence[before:before] = ops
        return True

    def _idle_at(self, j: int) -> dict[int, tuple[int, int]]:
        """Return (position that made it, next reader) of what is there at `j` and not read."""
        graph = self.graph
        made: dict[int, int] = {}
        for at in range(j):
            made |= dict.fromkeys(graph.ops[self.sequence[at]].outputs, at)
        current = graph.ops[self.sequence[j]]
        reader: dict[int, int] = {}
        gone = set(current.outputs)
        for at in range(j + 1, len(self.sequence)):
            op = graph.ops[self.sequence[at]]
            for t in op.inputs:
                if t not in gone:
                    reader.setdefault(t, at)
            gone.update(op.outputs)
        tensors = graph.tensors
        return {
            t: (made[t], at)
            for t, at in reader.items()
            if t in made and t not in current.inputs and not tensors[t].pinned
        }

    def _block(
        self, start: int, size: int, j: int, idle: dict[int, tuple[int, int]]
    ) -> tuple[int, tuple[int, ...], int] | None:
        """Return bytes freed at `j`, the ops, and where their copy goes; None where it is none."""
        graph = self.graph
        stop = start + size
        if stop > j:
            return None
        ops = tuple(dict.fromkeys(self.sequence[start:stop]))
        if not all(graph.ops[i].recomputable for i in ops):
            return None
        outputs = {t for i in ops for t in graph.ops[i].outputs}
        mine = {t for t in outputs if t in idle and start <= idle[t][0] < stop}
        if not mine:
            return None
        before = min(idle[t][1] for t in mine)
        freed = sum(graph.tensors[t].nbytes for t in mine)
        current = graph.ops[self.sequence[j]].inputs
        for t in {t for i in ops for t in graph.ops[i].inputs} - outputs:
            if not graph.tensors[t].pinned and t not in current and t not in idle:
                # It has to stay until the copy runs.
                freed -= graph.tensors[t].nbytes
        return (freed, ops, before) if freed > 0 else None


def live_bytes(graph: Graph, sequence: list[int]) -> list[int]:
    """Return (steps,) the bytes in use while each op of `sequence` runs."""
    schedule = schedule_of(graph, sequence)
    timeline = simulate(graph, schedule)
    return [
        nbytes
        for nbytes, step in zip(timeline.live_bytes, schedule, strict=True)
        if isinstance(step, Compute)
    ]
