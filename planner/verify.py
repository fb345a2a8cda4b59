"""The judge: accepts a schedule or names the step and the rule that it breaks.

It shares no code with any solver, so that an error in one cannot hide in the other. The rules:

1. A step names an op or tensor of the graph.
2. An op runs only when all its inputs are on the device.
3. An op that is not recomputable runs once.
4. Ops marked `in_order` run for the first time in the order of the graph.
5. No op of the forward phase runs for the first time after an op of a later phase.
6. Only a freeable tensor that is on the device is dropped.
7. At no step are more bytes in use than the budget.
8. In the end every op has run, and everything pinned is on the device.

A schedule that moves tensors keeps these as well:

9. A tensor is swapped out at most once, and only a freeable one that is on the device.
10. A tensor is read back only when its write is waited for and it is not on the device.
11. `Wait` is for a tensor that is on its way; in the end none is.
12. A tensor that is being read serves no op before its `Wait`; one that is on its way, in either
    direction, is neither dropped nor made again.
13. No tier holds more than its capacity. A copy lies there from its `SwapOut` until the `Wait` of
    its last `Prefetch`.

The memory of a tensor counts until the `Wait` of its write and from its `Prefetch` on, and the
buffers of every tier that is used count all the time: so the budget holds at any speed.
"""

from __future__ import annotations

from collections import Counter

from memplan.errors import InvalidSchedule
from memplan.graph_capture.graph import Phase
from memplan.planner.problem import Problem
from memplan.planner.schedule import Compute, Drop, Prefetch, Schedule, Step, SwapOut, Wait


def verify(problem: Problem, schedule: Schedule) -> None:
    """Check every rule above.

    Raises:
        InvalidSchedule: The first step that breaks a rule, and the rule.
    """
    graph, judge = problem.graph, _Replay(problem, schedule)
    for i, step in enumerate(schedule):
        used_bytes = judge.take(i, step)
        if used_bytes > problem.budget_bytes:
            over = used_bytes - problem.budget_bytes
            raise InvalidSchedule(i, f"{used_bytes} bytes in use, {over} over the budget")
    if missing := [op.name for o, op in enumerate(graph.ops) if o not in judge.done]:
        raise InvalidSchedule(len(schedule), f"never ran {', '.join(missing[:5])}")
    if moving := [graph.tensors[t].name for t in sorted(judge.writing | judge.reading)]:
        raise InvalidSchedule(len(schedule), f"never waited for {', '.join(moving[:5])}")


def is_valid(problem: Problem, schedule: Schedule) -> bool:
    """Return whether `schedule` keeps every rule above."""
    try:
        verify(problem, schedule)
    except InvalidSchedule:
        return False
    return True


class _Replay:
    """The state of the device while a schedule is checked."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        graph = problem.graph
        self.graph, self.tiers = graph, problem.tiers
        made = {t for op in graph.ops for t in op.outputs}
        self.resident = {t for t in range(len(graph.tensors)) if t not in made}
        self.resident_bytes = sum(graph.tensors[t].nbytes for t in self.resident)
        self.done: set[int] = set()
        self.queue = [o for o, op in enumerate(graph.ops) if op.in_order]
        self.forward_is_over = False
        self.writing: set[int] = set()
        self.reading: set[int] = set()
        self.tier_of: dict[int, int] = {}
        """For each tensor that was swapped out, where to."""
        self.tier_bytes = [0] * len(problem.tiers)
        self.reads_left = Counter(s.tensor for s in schedule if isinstance(s, Prefetch))
        for tier in {s.tier for s in schedule if isinstance(s, SwapOut)}:
            if 0 <= tier < len(problem.tiers):
                self.resident_bytes += problem.tiers[tier].buffer_bytes

    def take(self, i: int, step: Step) -> int:
        """Take one step; return the bytes in use meanwhile."""
        if isinstance(step, Compute):
            return self.compute(i, step)
        if not 0 <= step.tensor < len(self.graph.tensors):
            raise InvalidSchedule(i, f"there is no tensor {step.tensor}")
        if isinstance(step, Drop):
            return self.drop(i, step)
        if isinstance(step, SwapOut):
            return self.swap_out(i, step)
        return self.prefetch(i, step) if isinstance(step, Prefetch) else self.wait(i, step)

    def compute(self, i: int, step: Compute) -> int:
        """Run one op; return the bytes in use meanwhile."""
        if not 0 <= step.op < len(self.graph.ops):
            raise InvalidSchedule(i, f"there is no op {step.op}")
        op, again = self.graph.ops[step.op], step.op in self.done
        if absent := [self.graph.tensors[t].name for t in op.inputs if t not in self.resident]:
            raise InvalidSchedule(i, f"{op.name!r} reads {absent}, not on the device")
        if moving := [t for t in op.outputs if t in self.writing or t in self.reading]:
            name = self.graph.tensors[moving[0]].name
            raise InvalidSchedule(i, f"{op.name!r} makes {name!r}, which is on its way")
        if again and not op.recomputable:
            raise InvalidSchedule(i, f"{op.name!r} must not run twice")
        if not again and op.in_order and self.queue.pop(0) != step.op:
            raise InvalidSchedule(i, f"{op.name!r} runs before an op whose turn comes first")
        if not again and op.phase is Phase.FORWARD and self.forward_is_over:
            raise InvalidSchedule(i, f"{op.name!r} belongs to the forward phase, which is over")
        self.forward_is_over |= op.phase is not Phase.FORWARD
        written_bytes = sum(self.graph.tensors[t].nbytes for t in op.outputs)
        used_bytes = self.resident_bytes + written_bytes + op.workspace_bytes
        self.done.add(step.op)
        for t in op.outputs:
            if t not in self.resident:
                self.resident.add(t)
                self.resident_bytes += self.graph.tensors[t].nbytes
        return used_bytes

    def drop(self, i: int, step: Drop) -> int:
        """Free one tensor; return the bytes in use before."""
        tensor = self.graph.tensors[step.tensor]
        if step.tensor in self.writing or step.tensor in self.reading:
            raise InvalidSchedule(i, f"{tensor.name!r} is dropped while it is on its way")
        if step.tensor not in self.resident:
            raise InvalidSchedule(i, f"{tensor.name!r} is dropped but not on the device")
        if tensor.pinned:
            raise InvalidSchedule(i, f"{tensor.name!r} is pinned and cannot be dropped")
        used_bytes = self.resident_bytes
        self.resident.remove(step.tensor)
        self.resident_bytes -= tensor.nbytes
        return used_bytes

    def swap_out(self, i: int, step: SwapOut) -> int:
        """Start a write; return the bytes in use."""
        tensor = self.graph.tensors[step.tensor]
        if not 0 <= step.tier < len(self.tiers):
            raise InvalidSchedule(i, f"there is no tier {step.tier}")
        if step.tensor in self.tier_of:
            raise InvalidSchedule(i, f"{tensor.name!r} is swapped out twice")
        if step.tensor not in self.resident:
            raise InvalidSchedule(i, f"{tensor.name!r} is swapped out but not on the device")
        if tensor.pinned:
            raise InvalidSchedule(i, f"{tensor.name!r} is pinned and cannot be swapped out")
        tier = self.tiers[step.tier]
        self.tier_bytes[step.tier] += tensor.nbytes
        if (held_bytes := self.tier_bytes[step.tier]) > tier.capacity_bytes:
            over = held_bytes - tier.capacity_bytes
            raise InvalidSchedule(i, f"{held_bytes} bytes on {tier.name!r}, {over} too many")
        self.tier_of[step.tensor] = step.tier
        self.writing.add(step.tensor)
        return self.resident_bytes

    def prefetch(self, i: int, step: Prefetch) -> int:
        """Start a read; return the bytes in use meanwhile."""
        t, tensor = step.tensor, self.graph.tensors[step.tensor]
        if t not in self.tier_of:
            raise InvalidSchedule(i, f"{tensor.name!r} is read back but was never swapped out")
        if t in self.writing:
            raise InvalidSchedule(i, f"{tensor.name!r} is read back before it is written")
        if t in self.resident or t in self.reading:
            raise InvalidSchedule(i, f"{tensor.name!r} is read back but on the device already")
        self.reading.add(t)
        self.reads_left[t] -= 1
        self.resident_bytes += tensor.nbytes
        return self.resident_bytes

    def wait(self, i: int, step: Wait) -> int:
        """End a transfer; return the bytes in use until then."""
        t, used_bytes = step.tensor, self.resident_bytes
        if t in self.writing:
            self.writing.remove(t)
            self.resident.remove(t)
            self.resident_bytes -= self.graph.tensors[t].nbytes
        elif t in self.reading:
            self.reading.remove(t)
            self.resident.add(t)
            if not self.reads_left[t]:
                self.tier_bytes[self.tier_of[t]] -= self.graph.tensors[t].nbytes
        else:
            raise InvalidSchedule(i, f"{self.graph.tensors[t].name!r} is not on its way")
        return used_bytes
