"""From the choices of a chain method to the sequence of ops that follows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.solvers.chains._chain import Chain, ops_between

Choice: TypeAlias = tuple[int, int]
Choose: TypeAlias = Callable[[int, int, int, bool], Choice | None]
"""For a segment (s, t), a state and whether stage s runs for the first time: the split s' and the
state of the segment on its right, as `ChainProgram.split_of` gives them. The segment on the left
keeps the state. None where there is no plan."""


def sequence_for(chain: Chain, choose: Choose, state: int) -> tuple[int, ...] | None:
    """Return the ops to run, or None where `choose` finds no plan."""
    plan = _Plan(chain)
    stack: list[tuple[int, int, int, bool]] = [(0, len(chain) - 1, state, True)]
    while stack:
        s, t, state, first = stack.pop()
        if t < 0:
            plan.run_window(s)
            continue
        choice = choose(s, t, state, first)
        if choice is None:
            return None
        split, right_state = choice
        if split == s:
            plan.run_whole(s, first, with_output=s < t)
            stack.append((s, -1, 0, False))
            if s < t:
                stack.append((s + 1, t, right_state, first))
            continue
        for stage in range(s, split):
            plan.run_for_output(stage, first, keep_input=stage == s)
        stack.append((s, split - 1, state, False))
        stack.append((split, t, right_state, first))
    return tuple(plan.order)


class _Plan:
    """The ops so far, and the movable tensors that the plan counts on."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.graph = chain, chain.graph
        self.order: list[int] = []
        self.there: set[int] = set()
        self.made_by: list[list[int]] = [[] for _ in range(len(chain))]
        for t, stage in enumerate(chain.stage):
            if stage >= 0:
                self.made_by[stage].append(t)

    def run_for_output(self, stage: int, first: bool, keep_input: bool) -> None:
        """Run a stage of which only the output stays."""
        output = self.chain.boundary[stage]
        self._run(stage, first, () if output is None else (output,))
        self.there.difference_update(t for t in self.made_by[stage] if t != output)
        if not keep_input:
            self._forget_input(stage)

    def run_whole(self, stage: int, first: bool, with_output: bool) -> None:
        """Run a stage of which everything stays that its window reads."""
        output = self.chain.boundary[stage]
        wanted = self.chain.saved[stage]
        if with_output and output is not None:
            wanted |= {output}
        self._run(stage, first, wanted)
        self.there.difference_update(t for t in self.made_by[stage] if t not in wanted)

    def run_window(self, stage: int) -> None:
        """Run the backward ops of a stage; afterwards nothing of it is read again."""
        for op in self.chain.backward[stage]:
            self._make(self.graph.ops[op].inputs)
            self.order.append(op)
        self.there.difference_update(self.made_by[stage])
        self._forget_input(stage)

    def _forget_input(self, stage: int) -> None:
        start = self.chain.input_of(stage)
        if start is not None:
            self.there.discard(start)

    def _run(self, stage: int, first: bool, wanted: Iterable[int]) -> None:
        if not first:
            self._make(wanted)
            return
        for op in self.chain.forward[stage]:
            self.order.append(op)
            self.there.update(t for t in self.graph.ops[op].outputs if self.chain.movable[t])

    def _make(self, wanted: Iterable[int]) -> None:
        """Run again whatever is needed for `wanted`, in captured order."""
        for op in ops_between(self.chain, self.there, wanted):
            self.order.append(op)
            self.there.update(t for t in self.graph.ops[op].outputs if self.chain.movable[t])


def first_that_fits(problem: Problem, chain: Chain, plans: Iterable[tuple[int, ...]]) -> Solution:
    """Return the first plan within the budget; UNKNOWN where there is none.

    `plans` come from the cheapest on.
    """
    graph, tried = problem.graph, 0
    stats = {"stages": len(chain)}
    for sequence in plans:
        tried += 1
        schedule = schedule_of(graph, sequence)
        timeline = simulate(graph, schedule)
        if timeline.peak_bytes <= problem.budget_bytes:
            optimal = timeline.time_ns == graph.time_ns
            return Solution(
                status=Status.OPTIMAL if optimal else Status.FEASIBLE,
                schedule=schedule,
                proven_bound_ns=graph.time_ns,
                stats=stats | {"plans": tried},
            )
    return Solution(
        status=Status.UNKNOWN,
        proven_bound_ns=graph.time_ns,
        reason=f"none of {tried} plans for a chain of {len(chain)} stages fits",
        stats=stats | {"plans": tried},
    )
