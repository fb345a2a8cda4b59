"""A genetic search over the order of ops and what leaves first, judged by the simulator.

Source: Huang et al., "SwapAdvisor: Pushing Deep Learning Beyond the GPU Memory Limit via Smart
    Swapping", ASPLOS 2020 (row 11 of docs/systems.md).
Deviations: No size classes, as addresses are packed elsewhere; in their place each tensor has a
    weight that says how soon it may leave, and the planner of swaps is given a share of the
    budget. Ops whose order a model fixes keep it.
Exact?: No.
Complexity: O(evaluations x ops x idle tensors).
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from memplan.planner.moves import Move, place
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution
from memplan.planner.verify import is_valid
from memplan.solvers.orders._order import Rules, places, room_of
from memplan.solvers.swaps._on_demand import evict_on_demand
from memplan.solvers.swaps._swap_rules import solution_of, without_swap


@dataclass(frozen=True, slots=True)
class Swapadvisor:
    """Elitist selection; the time of the step is the fitness.

    Attributes:
        population: How many live at a time.
        generations: After so many it ends, or when time is over.
        mutation: Share of the genes that change in a child.
    """

    name: ClassVar[str] = "swapadvisor"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "SwapAdvisor (ASPLOS 2020): a genetic search with the simulator"
    may: ClassVar[tuple[str, ...]] = ("keep", "swap")

    population: int = 16
    generations: int = 20
    mutation: float = 0.1

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the fastest that was ever alive."""
        if answer := without_swap(problem):
            return answer
        return _Search(self, problem, limits).run()


@dataclass(frozen=True, slots=True)
class _Genome:
    """What is inherited.

    Attributes:
        order: (ops,) a valid order of the graph.
        weights: (tensors,) what is multiplied with how far away the next use is.
        share: Of the room that the planner of swaps may fill.
    """

    order: tuple[int, ...]
    weights: tuple[float, ...]
    share: float


@dataclass(frozen=True, slots=True)
class _Individual:
    """A genome and how good it is; less is better.

    Attributes:
        fitness: (bytes missing, time of the step); no bytes are missing where it fits.
    """

    genome: _Genome
    fitness: tuple[int, int]
    schedule: Schedule | None


class _Search:
    """The population, and what is known of those that did not fit."""

    def __init__(self, options: Swapadvisor, problem: Problem, limits: Limits) -> None:
        self.options, self.problem = options, problem
        self.rng = random.Random(limits.seed)
        self.deadline = time.monotonic() + limits.time_s
        self.rules = Rules(problem.graph)
        self.reason = "it ran out of time"
        self.missing_bytes: int | None = None
        self.judged = 0

    def run(self) -> Solution:
        count = len(self.problem.graph.tensors)
        first = _Genome(
            order=tuple(range(len(self.problem.graph.ops))), weights=(1.0,) * count, share=1.0
        )
        alive = [self._judge(first)]
        while len(alive) < self.options.population and not self._is_over(alive):
            alive.append(self._judge(self._mutated(first)))
        for _ in range(self.options.generations):
            for _ in range(self.options.population):
                if self._is_over(alive):
                    return self._answer(alive)
                one, other = self.rng.sample(alive, 2)
                alive.append(self._judge(self._mutated(self._crossed(one.genome, other.genome))))
            alive = sorted(alive, key=lambda i: i.fitness)[: self.options.population]
        return self._answer(alive)

    def _is_over(self, alive: Sequence[_Individual]) -> bool:
        nothing_to_gain = alive[0].fitness == (0, self.problem.graph.time_ns)
        return nothing_to_gain or time.monotonic() > self.deadline

    def _answer(self, alive: Sequence[_Individual]) -> Solution:
        best = min(alive, key=lambda i: i.fitness)
        return solution_of(self.problem, best.schedule, self.reason, {"evaluations": self.judged})

    def _judge(self, genome: _Genome) -> _Individual:
        """Let the planner of swaps work for a genome, and simulate what comes of it."""
        self.judged += 1

        def soonest(gap: Move) -> int:
            return -round(1000 * genome.weights[gap.tensor] * (gap.back - gap.out))

        tier = self.problem.tiers[0]
        room_bytes = self.problem.budget_bytes - tier.buffer_bytes
        stricter = replace(
            self.problem, budget_bytes=round(room_bytes * genome.share) + tier.buffer_bytes
        )
        moves = evict_on_demand(stricter, soonest, early=True, sequence=genome.order)
        placed = place(self.problem, genome.order, moves)
        if placed.schedule is None:
            if self.missing_bytes is None or placed.missing_bytes < self.missing_bytes:
                self.missing_bytes = placed.missing_bytes
                op = self.problem.graph.ops[genome.order[placed.failed_step]].name
                self.reason = (
                    f"no room while {op!r} runs: {placed.missing_bytes:,} bytes are missing"
                )
            return _Individual(genome, (max(1, placed.missing_bytes), 0), None)
        if not is_valid(self.problem, placed.schedule):
            self.reason = "a tier cannot hold what is moved to it"
            return _Individual(genome, (self.problem.budget_bytes, 0), None)
        time_ns = simulate(self.problem.graph, placed.schedule, self.problem.tiers).time_ns
        return _Individual(genome, (0, time_ns), placed.schedule)

    def _crossed(self, one: _Genome, other: _Genome) -> _Genome:
        """Return the first ops of one parent and the rest in the order of the other.

        The child's order is valid, as whatever an op needs is earlier in both.
        """
        cut = self.rng.randint(0, len(one.order))
        head = one.order[:cut]
        taken = set(head)
        order = head + tuple(op for op in other.order if op not in taken)
        pairs = zip(one.weights, other.weights, strict=True)
        weights = tuple(self.rng.choice(pair) for pair in pairs)
        return _Genome(order, weights, self.rng.choice((one.share, other.share)))

    def _mutated(self, genome: _Genome) -> _Genome:
        rng, rate = self.rng, self.options.mutation
        weights = tuple(
            w * rng.lognormvariate(0.0, 1.0) if rng.random() < rate else w for w in genome.weights
        )
        share = min(1.0, genome.share * rng.uniform(0.9, 1.05))
        return _Genome(self._reordered(genome.order), weights, share)

    def _reordered(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """Let a few ops run earlier or later, where the order allows."""
        if self.rng.random() < 0.5 or not order:
            return order
        sequence = list(order)
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            at = self.rng.randrange(len(sequence))
            first, last = room_of(self.rules, sequence[at], places(sequence))
            op = sequence.pop(at)
            sequence.insert(self.rng.randint(first, last), op)
        return tuple(sequence)
