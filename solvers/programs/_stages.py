"""The stages of Checkmate: stage t ends with the first run of op t.

Shared by the models that have one variable for each op and tensor in each stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from memplan.graph_capture.graph import Graph
from memplan.planner.problem import Problem


class Stages:
    """Which ops can run again, and which tensors can be carried, in which stage.

    Tensors that are pinned, empty or unread are no decision: they are always there once made,
    or never again. The others are called movable. An op can run again in stage t only if it is
    recomputable and one of its outputs may still be read then; `reach` says until when.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.movable = [
            not t.pinned and t.nbytes > 0 and bool(graph.consumers[i])
            for i, t in enumerate(graph.tensors)
        ]
        self.inputs = [tuple(t for t in op.inputs if self.movable[t]) for op in graph.ops]
        self.outputs = [tuple(t for t in op.outputs if self.movable[t]) for op in graph.ops]
        self.tensors = [t for t, movable in enumerate(self.movable) if movable]
        self.source = [-1 if p is None else p for p in graph.producer]
        self.running_bytes = [
            sum(graph.tensors[t].nbytes for t in op.outputs) + op.workspace_bytes
            for op in graph.ops
        ]

    @cached_property
    def reach(self) -> list[int]:
        """For each movable tensor the last stage in which it may be read, else -1."""
        reach = [-1] * len(self.graph.tensors)
        for i in range(len(self.graph.ops) - 1, -1, -1):
            again = (reach[t] for t in self.outputs[i])
            last = max(again, default=i) if self.graph.ops[i].recomputable else i
            for t in self.inputs[i]:
                reach[t] = max(reach[t], last, i)
        return reach

    @cached_property
    def fixed_bytes(self) -> list[int]:
        """(ops,) bytes that are there throughout each stage: given, and pinned made before."""
        fixed, total_bytes = [], self.graph.given_bytes
        for op in self.graph.ops:
            fixed.append(total_bytes)
            total_bytes += sum(
                self.graph.tensors[t].nbytes for t in op.outputs if self.graph.tensors[t].pinned
            )
        return fixed

    def may_run(self, stage: int, op: int) -> bool:
        """Whether `op` may run in `stage`, for the first time or again."""
        if op >= stage:
            return op == stage
        return self.graph.ops[op].recomputable and any(
            self.reach[t] >= stage for t in self.outputs[op]
        )

    def may_carry(self, stage: int, tensor: int) -> bool:
        """Whether `tensor` may be there when `stage` begins."""
        return self.source[tensor] < stage <= self.reach[tensor]

    @cached_property
    def again(self) -> list[tuple[int, ...]]:
        """For each stage the ops that may run again in it."""
        return [
            tuple(i for i in range(t) if self.may_run(t, i)) for t in range(len(self.graph.ops))
        ]

    @cached_property
    def carried(self) -> list[tuple[int, ...]]:
        """For each stage the tensors that may be there when it begins."""
        return [
            tuple(k for k in self.tensors if self.may_carry(t, k))
            for t in range(len(self.graph.ops))
        ]

    @cached_property
    def decisions(self) -> int:
        """Number of pairs of a stage and an op or tensor that have to be decided."""
        return sum(map(len, self.again)) + sum(map(len, self.carried))

    def split(self, sequence: Sequence[int]) -> list[tuple[int, ...]] | None:
        """Return the ops of each stage of a sequence, sorted, each once.

        None where an op runs in a stage in which it may not.
        """
        stages: list[tuple[int, ...]] = []
        current: set[int] = set()
        for op in sequence:
            if not self.may_run(len(stages), op):
                return None
            current.add(op)
            if op == len(stages):
                stages.append(tuple(sorted(current)))
                current = set()
        return stages


def smallest_tensors(problem: Problem, stages: Stages, share: float) -> frozenset[int]:
    """Return the smallest movable tensors, as many as together fit `share` of the budget."""
    left_bytes = share * problem.budget_bytes
    chosen = []
    for t in sorted(stages.tensors, key=lambda t: (problem.graph.tensors[t].nbytes, t)):
        left_bytes -= problem.graph.tensors[t].nbytes
        if left_bytes < 0:
            break
        chosen.append(t)
    return frozenset(chosen)
