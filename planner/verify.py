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
"""

from __future__ import annotations

from memplan.errors import InvalidSchedule
from memplan.graph_capture.graph import Graph, Phase
from memplan.planner.problem import Problem
from memplan.planner.schedule import Compute, Drop, Schedule


def verify(problem: Problem, schedule: Schedule) -> None:
    """Check every rule above.

    Raises:
        InvalidSchedule: The first step that breaks a rule, and the rule.
    """
    graph, judge = problem.graph, _Replay(problem.graph)
    for i, step in enumerate(schedule):
        used_bytes = judge.compute(i, step) if isinstance(step, Compute) else judge.drop(i, step)
        if used_bytes > problem.budget_bytes:
            over = used_bytes - problem.budget_bytes
            raise InvalidSchedule(i, f"{used_bytes} bytes in use, {over} over the budget")
    if missing := [op.name for o, op in enumerate(graph.ops) if o not in judge.done]:
        raise InvalidSchedule(len(schedule), f"never ran {', '.join(missing[:5])}")


def is_valid(problem: Problem, schedule: Schedule) -> bool:
    """Return whether `schedule` keeps every rule above."""
    try:
        verify(problem, schedule)
    except InvalidSchedule:
        return False
    return True


class _Replay:
    """The state of the device while a schedule is checked."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        made = {t for op in graph.ops for t in op.outputs}
        self.resident = {t for t in range(len(graph.tensors)) if t not in made}
        self.resident_bytes = sum(graph.tensors[t].nbytes for t in self.resident)
        self.done: set[int] = set()
        self.queue = [o for o, op in enumerate(graph.ops) if op.in_order]
        self.forward_is_over = False

    def compute(self, i: int, step: Compute) -> int:
        """Run one op; return the bytes in use meanwhile."""
        if not 0 <= step.op < len(self.graph.ops):
            raise InvalidSchedule(i, f"there is no op {step.op}")
        op, again = self.graph.ops[step.op], step.op in self.done
        if absent := [self.graph.tensors[t].name for t in op.inputs if t not in self.resident]:
            raise InvalidSchedule(i, f"{op.name!r} reads {absent}, not on the device")
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
        if not 0 <= step.tensor < len(self.graph.tensors):
            raise InvalidSchedule(i, f"there is no tensor {step.tensor}")
        tensor = self.graph.tensors[step.tensor]
        if step.tensor not in self.resident:
            raise InvalidSchedule(i, f"{tensor.name!r} is dropped but not on the device")
        if tensor.pinned:
            raise InvalidSchedule(i, f"{tensor.name!r} is pinned and cannot be dropped")
        used_bytes = self.resident_bytes
        self.resident.remove(step.tensor)
        self.resident_bytes -= tensor.nbytes
        return used_bytes
