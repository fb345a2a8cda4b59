"""The best plan for a chain of unequal stages: keep a stage whole, its input, or nothing.

Source: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous
    chains: how to train deep neural networks with limited memory" (2019); bytes in 500 slots
    as in its implementation.
Deviations: The graph is contracted to a chain first (`_chain`). A stage that runs again runs only
    those ops that its output, or what its window reads, depends on. Peaks of stages and windows
    are measured by replaying them, gradients included, so that no estimate of them is needed.
    The first pass is free in the program, as every plan has to pay for it. Where the plan of the
    program does not fit, because the graph is no perfect chain, that for fewer bytes is taken.
Exact?: On chains with bytes in whole slots, among plans that keep a checkpoint until its window
    is done (memory persistent, as in the paper). OPTIMAL only where nothing is recomputed.
Complexity: O(stages^3 slots), vectorised over the slots.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from memplan.planner.limits import settled
from memplan.planner.problem import Limits, Problem
from memplan.planner.solver import Solution, Status
from memplan.solvers.chains._chain import Chain, chain_of
from memplan.solvers.chains._chain_costs import chain_costs
from memplan.solvers.chains._chain_plans import first_that_fits, sequence_for
from memplan.solvers.chains._chain_program import NEVER, ChainProgram


@dataclass(frozen=True, slots=True)
class Rotor:
    """A dynamic program over stages and bytes.

    Attributes:
        slots: How finely bytes are divided.
        keep_whole_stages: Whether a stage may keep all that its backward ops read.
        most_stages: Neighbours are merged where there are more.
    """

    name: ClassVar[str] = "rotor"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "Beaumont et al. 2019 (rotor), DP for heterogeneous chains"

    slots: int = 500
    keep_whole_stages: bool = True
    most_stages: int = 100

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the plan of the program, or why the graph is no chain."""
        if answer := settled(problem):
            return answer
        deadline = time.monotonic() + limits.time_s
        chain = chain_of(problem.graph, self.most_stages)
        if isinstance(chain, str):
            bound_ns = problem.graph.time_ns
            return Solution(status=Status.UNKNOWN, proven_bound_ns=bound_ns, reason=chain)
        plans = self._plans(problem, chain, deadline)
        return first_that_fits(problem, chain, plans)

    def _plans(self, problem: Problem, chain: Chain, deadline: float) -> Iterator[tuple[int, ...]]:
        """Yield plans from the cheapest on, for fewer and fewer slots."""
        program = ChainProgram(
            chain_costs(chain),
            problem.budget_bytes,
            problem.graph.given_bytes,
            self.slots,
            self.keep_whole_stages,
            deadline,
        )
        if not program.complete:
            return
        before_ns = -1
        for slots in range(program.slots, -1, -1):
            extra_ns = int(program.first[0][slots])
            if extra_ns >= NEVER or time.monotonic() > deadline:
                return
            if extra_ns == before_ns:
                continue
            before_ns = extra_ns
            sequence = sequence_for(chain, program.split_of, slots)
            if sequence is not None:
                yield sequence
