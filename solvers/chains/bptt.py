"""Backpropagation through time in little memory: keep hidden states, whole steps, or neither.

Source: Gruslys, Munos, Danihelka, Lanctot, Graves, "Memory-Efficient Backpropagation Through Time"
    (NIPS 2016), section 3.3 (BPTT-MSM: both hidden and internal states) and, without
    `keep_whole_stages`, section 3.1 (BPTT-HSM).
Deviations: The graph is contracted to a chain first (`_chain`). As the paper has it, all steps are
    equal: what one keeps counts as large as the largest, and it takes the mean time. Peaks are
    measured, and the size of the internal state (alpha hidden states in the paper) follows from
    the graph. As unequal steps take less than assumed, the program is solved for budgets up to
    four times the true one (bisection), and the cheapest plan that fits is returned.
Exact?: On chains of equal steps. OPTIMAL only where nothing is recomputed.
Complexity: O(stages^3 slots), vectorised over the slots.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.cheapest import cheapest_within
from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.solvers.chains._chain import Chain, chain_of
from memplan.solvers.chains._chain_costs import chain_costs
from memplan.solvers.chains._chain_plans import sequence_for
from memplan.solvers.chains._chain_program import NEVER, ChainProgram

_BOLD = 4
"""The largest budget that the program is solved for, as a multiple of the true one."""
_LAST_TRIES = 20
"""How many of the smallest plans are tried where the bisection finds none."""


@dataclass(frozen=True, slots=True)
class Bptt:
    """A dynamic program over equal steps.

    Attributes:
        slots: How finely bytes are divided.
        keep_whole_stages: Whether a step may keep its internal state.
        most_stages: Neighbours are merged where there are more.
    """

    name: ClassVar[str] = "bptt"
    kind: ClassVar[str] = "baseline"
    source: ClassVar[str] = "Gruslys et al., memory-efficient BPTT (NIPS 2016), DP for equal steps"

    slots: int = 500
    keep_whole_stages: bool = True
    most_stages: int = 100

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the cheapest plan that fits, or why the graph is no chain."""
        if answer := settled(problem):
            return answer
        deadline = time.monotonic() + limits.time_s
        chain = chain_of(problem.graph, self.most_stages)
        if isinstance(chain, str):
            bound_ns = problem.graph.time_ns
            return Solution(status=Status.UNKNOWN, proven_bound_ns=bound_ns, reason=chain)
        return cheapest_within(problem, self._plans(problem, chain, deadline))

    def _plans(self, problem: Problem, chain: Chain, deadline: float) -> Iterator[tuple[int, ...]]:
        """Yield plans for different budgets, bisecting for the largest whose plan fits."""
        program = ChainProgram(
            chain_costs(chain).uniform(),
            _BOLD * problem.budget_bytes,
            problem.graph.given_bytes,
            self.slots,
            self.keep_whole_stages,
            deadline,
        )
        if not program.complete:
            return
        row = program.first[0]
        changes = [
            slots
            for slots in range(program.slots, -1, -1)
            if row[slots] < NEVER and (slots == 0 or row[slots] < row[slots - 1])
        ]
        low, high = 0, len(changes)
        while low < high and time.monotonic() < deadline:
            middle = (low + high) // 2
            sequence = sequence_for(chain, program.split_of, changes[middle])
            if sequence is None:
                return
            yield sequence
            peak_bytes = simulate(problem.graph, schedule_of(problem.graph, sequence)).peak_bytes
            if peak_bytes <= problem.budget_bytes:
                high = middle
            else:
                low = middle + 1
        if high == len(changes):
            for slots in changes[-_LAST_TRIES:]:
                sequence = sequence_for(chain, program.split_of, slots)
                if sequence is not None:
                    yield sequence
