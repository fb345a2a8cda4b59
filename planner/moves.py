"""Which tensors are away when, and the schedule of transfers that follows.

A solver says what is away between which two ops; `place` finds the starts of all transfers and
the waits. Memory of a write is waited for when it is needed, not before, so that a tier that is
slower than planned costs no more than it must. A read starts as late as it is still on time, or
earlier where the lane is busy later, if there is room from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy
import numpy.typing

from memplan.graph_capture.graph import Graph, Phase
from memplan.planner.problem import Problem
from memplan.planner.schedule import (
    Compute,
    Prefetch,
    Schedule,
    Step,
    SwapOut,
    Wait,
    schedule_of,
    with_drops,
)
from memplan.planner.simulate import simulate
from memplan.planner.tiers import Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A tensor is away between two steps of a sequence of ops.

    Attributes:
        out: The write starts after this step; no step between it and `back` reads the tensor.
        back: The step that reads it next.
        tier: Where it is meanwhile, by index.
    """

    tensor: int
    out: int
    back: int
    tier: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When transfers start, beside what a `Move` says.

    Attributes:
        ahead: Read this many steps of the sequence before the use, or on time where it is None.
        heavy: With `ahead`, only these ops count as steps.
        waits_at_once: Compute waits for each write.
        lead: Reads are taken to last this much longer when they are started on time.
    """

    ahead: int | None = None
    heavy: frozenset[int] | None = None
    waits_at_once: bool = False
    lead: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What became of moves: a schedule within the budget, or the step that does not fit.

    Attributes:
        schedule: None where a step does not fit.
        failed_step: The first step of the sequence without room; -1 where all fit.
        missing_bytes: How many bytes that one lacks.
    """

    schedule: Schedule | None
    failed_step: int = -1
    missing_bytes: int = 0


def gaps_of(graph: Graph, sequence: Sequence[int]) -> list[Move]:
    """Return every stretch of `sequence` in which a freeable tensor is kept but not read."""
    last: dict[int, int] = {}
    found: list[Move] = []
    for j, op_index in enumerate(sequence):
        op = graph.ops[op_index]
        for t in op.inputs:
            if t in last and last[t] < j - 1 and graph.tensors[t].nbytes:
                found.append(Move(tensor=t, out=last[t], back=j))
            if t in last:
                last[t] = j
        for t in op.outputs:
            if not graph.tensors[t].pinned:
                last[t] = j
    return found


def movable_gaps(graph: Graph, sequence: Sequence[int], least_bytes: int = 0) -> list[Move]:
    """Return the gaps of tensors that can be moved: not those of the optimizer's own ops."""
    update = {t for op in graph.ops if op.phase is Phase.UPDATE for t in (*op.inputs, *op.outputs)}
    return [
        gap
        for gap in gaps_of(graph, sequence)
        if gap.tensor not in update and graph.tensors[gap.tensor].nbytes >= least_bytes
    ]


def moves_in(graph: Graph, schedule: Schedule) -> list[Move]:
    """Return the moves that `schedule` makes, in terms of the steps of its sequence."""
    last: dict[int, int] = {}
    tier_of: dict[int, int] = {}
    back: dict[int, int] = {}
    """For each tensor that was read back and not used since, where it was used before."""
    moves: list[Move] = []
    j = 0
    for step in schedule:
        if isinstance(step, SwapOut):
            tier_of[step.tensor] = step.tier
        elif isinstance(step, Prefetch):
            back[step.tensor] = last[step.tensor]
        elif isinstance(step, Compute):
            op = graph.ops[step.op]
            for t in op.inputs:
                if t in back and back[t] < j - 1:
                    moves.append(Move(tensor=t, out=back[t], back=j, tier=tier_of[t]))
                back.pop(t, None)
            last.update(dict.fromkeys((*op.inputs, *op.outputs), j))
            j += 1
    return moves


def place(
    problem: Problem,
    sequence: Sequence[int],
    moves: Collection[Move],
    timing: Timing = Timing(),
) -> Placement:
    """Return the schedule that runs `sequence` with `moves`, or why it has none.

    A move that frees nothing that is needed is left out.
    """
    walk = _Walk(problem, sequence, sorted(moves, key=lambda m: (m.out, m.tensor)), timing)
    return walk.run()


def live_bytes_of(graph: Graph, sequence: Sequence[int]) -> numpy.typing.NDArray[numpy.int64]:
    """(steps of the sequence,) bytes in use while each op runs, if nothing is moved."""
    schedule = schedule_of(graph, sequence)
    live = simulate(graph, schedule).live_bytes
    running = [b for b, s in zip(live, schedule, strict=True) if isinstance(s, Compute)]
    return numpy.array(running, dtype=numpy.int64)


class _Walk:
    """One pass over the sequence with a clock, the lanes, and the bytes in use.

    Attributes:
        reserved: For each step the bytes in use, what is away left out and what was read early
            counted. Writes that were not waited for come on top.
        pending: Moves whose write was started and not waited for, in order, with their step's
            index in `steps` and the end of the write.
    """

    def __init__(
        self, problem: Problem, sequence: Sequence[int], moves: list[Move], timing: Timing
    ) -> None:
        self.problem, self.sequence, self.timing = problem, sequence, timing
        self.graph = problem.graph
        self.sizes = [t.nbytes for t in self.graph.tensors]
        used = {move.tier for move in moves}
        self.room_bytes = problem.budget_bytes - sum(problem.tiers[t].buffer_bytes for t in used)
        self.reserved = live_bytes_of(self.graph, sequence)
        self.out_at: dict[int, list[Move]] = {}
        for move in moves:
            self.reserved[move.out + 1 : move.back] -= self.sizes[move.tensor]
            self.out_at.setdefault(move.out, []).append(move)
        self.reads = deque(sorted(moves, key=lambda m: (m.back, m.out, m.tensor)))
        self.due = self._due_steps()
        self.lanes = Lanes(problem.tiers)
        self.now_ns = 0
        self.steps: list[Step | None] = []
        self.pending: dict[int, tuple[Move, int, int]] = {}
        self.pending_bytes = 0
        self.copied: set[int] = set()
        self.reading: dict[int, int] = {}
        """For each tensor on its way in, the end of its read."""
        self.missing_bytes = 0

    def run(self) -> Placement:
        for j, op in enumerate(self.sequence):
            self._read_ahead(j)
            if not self._fits(j):
                return Placement(
                    schedule=None, failed_step=j, missing_bytes=int(self.missing_bytes)
                )
            self._read_now(j)
            for t in self.graph.ops[op].inputs:
                if t in self.reading:
                    self.now_ns = max(self.now_ns, self.reading.pop(t))
                    self.steps.append(Wait(t))
            self.steps.append(Compute(op))
            self.now_ns += self.graph.ops[op].time_ns
            for move in self.out_at.get(j, ()):
                self._write(move)
        for t in list(self.pending):
            self._wait_write(t)
        done = (step for step in self.steps if step is not None)
        return Placement(schedule=with_drops(self.graph, done))

    def _due_steps(self) -> dict[Move, int]:
        """For each move, the step before which its read should start."""
        if self.timing.ahead is not None:
            return self._steps_ahead(self.timing.ahead)
        begin_ns = numpy.cumsum([0, *(self.graph.ops[op].time_ns for op in self.sequence)])
        free_ns = [float("inf")] * len(self.problem.tiers)
        due: dict[Move, int] = {}
        for move in reversed(self.reads):
            needed_ns = float(min(begin_ns[move.back], free_ns[move.tier]))
            read_ns = self.problem.tiers[move.tier].read_ns(self.sizes[move.tensor])
            free_ns[move.tier] = needed_ns - read_ns * self.timing.lead
            at = int(numpy.searchsorted(begin_ns, free_ns[move.tier], side="right")) - 1
            due[move] = min(max(at, move.out + 1), move.back)
        return due

    def _steps_ahead(self, ahead: int) -> dict[Move, int]:
        heavy = self.timing.heavy
        counted = [j for j, op in enumerate(self.sequence) if heavy is None or op in heavy]
        due: dict[Move, int] = {}
        for move in self.reads:
            before = int(numpy.searchsorted(counted, move.back)) - ahead
            at = counted[before] if 0 <= before < len(counted) else 0
            due[move] = min(max(at, move.out + 1), move.back)
        return due

    def _read_ahead(self, j: int) -> None:
        """Start the reads that are due before step `j` and for which there is room."""
        while self.reads and self.due[self.reads[0]] <= j < self.reads[0].back:
            move = self.reads[0]
            nbytes = self.sizes[move.tensor]
            stays = move.tensor in self.pending
            peak_bytes = int(self.reserved[j : move.back].max()) + nbytes
            others_bytes = self.pending_bytes - (nbytes if stays else 0)
            while peak_bytes + others_bytes > self.room_bytes:
                if (gone := self._written({move.tensor})) is None:
                    return
                self._wait_write(gone)
                others_bytes -= self.sizes[gone]
            self.reads.popleft()
            self.reserved[j : move.back] += nbytes
            if stays:
                self._cancel(move.tensor)
            else:
                self._read(move)

    def _read_now(self, j: int) -> None:
        """Start the reads that step `j` needs and that were not started."""
        while self.reads and self.reads[0].back == j:
            move = self.reads.popleft()
            if move.tensor in self.pending:
                self._cancel(move.tensor)
            else:
                self._read(move)

    def _fits(self, j: int) -> bool:
        """Make room for step `j` by waiting for writes."""
        while True:
            # What step j reads and was never waited for is counted in `reserved` already.
            now = takewhile(lambda m: m.back == j, self.reads)
            back = [m for m in now if m.tensor in self.pending]
            twice_bytes = sum(self.sizes[m.tensor] for m in back)
            over = int(self.reserved[j]) + self.pending_bytes - twice_bytes - self.room_bytes
            if over <= 0:
                return True
            stay = {m.tensor for m in back}
            leaves = self._written(stay)
            if leaves is None:
                leaves = next((t for t in self.pending if t not in stay), None)
            if leaves is None:
                self.missing_bytes = over
                return False
            self._wait_write(leaves)

    def _written(self, stay: Collection[int]) -> int | None:
        """Return a tensor whose write has ended by now but was not waited for."""
        ended = (t for t, (_, _, end_ns) in self.pending.items() if end_ns <= self.now_ns)
        return next((t for t in ended if t not in stay), None)

    def _write(self, move: Move) -> None:
        if move.tensor in self.copied:
            return
        nbytes = self.sizes[move.tensor]
        end_ns = self.lanes.write(move.tier, nbytes, self.now_ns)
        self.steps.append(SwapOut(move.tensor, move.tier))
        self.pending[move.tensor] = (move, len(self.steps) - 1, end_ns)
        self.pending_bytes += nbytes
        self.copied.add(move.tensor)
        if self.timing.waits_at_once:
            self._wait_write(move.tensor)

    def _wait_write(self, t: int) -> None:
        _, _, end_ns = self.pending.pop(t)
        self.now_ns = max(self.now_ns, end_ns)
        self.pending_bytes -= self.sizes[t]
        self.steps.append(Wait(t))

    def _cancel(self, t: int) -> None:
        """Take back a write: the tensor never had to leave."""
        _, at, _ = self.pending.pop(t)
        self.pending_bytes -= self.sizes[t]
        self.copied.discard(t)
        self.steps[at] = None

    def _read(self, move: Move) -> None:
        nbytes = self.sizes[move.tensor]
        self.reading[move.tensor] = self.lanes.read(move.tier, nbytes, self.now_ns)
        self.steps.append(Prefetch(move.tensor))
