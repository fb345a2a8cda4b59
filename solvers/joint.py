"""Keep, recompute or move, chosen together under the bandwidth of the tier.

Source: none; the greedy replays of this project (`greedy`), in which what was let go may be read
    back. The cheaper of recomputing and moving, tensor by tensor, is the rule of Capuchin (Peng et
    al., ASPLOS 2020); prices for a shared lane are Lagrange multipliers.
Deviations: none.
Exact?: No. The schedule is optimal where nothing is recomputed and nothing stalls.
Complexity: One replay costs O(evictions x (tensors + evicted relatives)), its placement
    O(steps + transfers x steps between).
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy

from memplan.graph_capture.graph import Op
from memplan.planner.moves import Move, Timing, movable_gaps, moves_in, place
from memplan.planner.problem import Limits, Problem
from memplan.planner.prune import Lives
from memplan.planner.schedule import Prefetch, Schedule, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, load_solver
from memplan.planner.step_events import uses_of
from memplan.planner.verify import is_valid
from memplan.solvers._replay import Replay, Weights, Workload, recomputed_tensors
from memplan.solvers._swap_replay import split, without_steps
from memplan.solvers.swaps._swap_rules import kept_but, saved_gaps, solution_of, without_swap


@dataclass(frozen=True, slots=True)
class Joint:
    """Swap policies and recomputation alone, then replays that mix them, and exchanges.

    Attributes:
        starts: Policies whose schedules are looked at first.
        replays: How many replays and exchanges; None for as many as fit into the time.
        patience: Stop after so many of them without a better schedule.
        near: A schedule within this share of the step's own time is good enough.
        start: A schedule to begin with.
    """

    name: ClassVar[str] = "joint"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "replays that recompute or move what they let go, at a price a byte"
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    starts: tuple[str, ...] = (
        *("lms", "flashneuron", "capuchin", "lohan", "halo", "modnn", "deepum", "layrub"),
        *("tsplit", "superneurons", "vdnn-dyn", "oc-dnn", "swap-belady", "save-on-cpu"),
        *("swap-lru", "vdnn-all", "vdnn-conv", "unified-memory", "dymem", "torchtitan"),
    )
    replays: int | None = None
    patience: int = 200
    near: float = 0.0002
    start: Schedule | None = field(default=None, repr=False)

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the fastest schedule found; on Ctrl-C, of those so far if there is one."""
        if answer := without_swap(problem):
            if problem.tiers or answer.schedule is not None or answer.minimum_bytes is not None:
                return answer
            return load_solver("greedy").solve(problem, limits)
        search = _Search(problem, limits)
        try:
            self._search(search, limits)
        except KeyboardInterrupt:
            if search.best is None:
                raise
        reason = search.reason or "no replay fitted"
        return solution_of(problem, search.best, reason, search.stats)

    def _search(self, search: _Search, limits: Limits) -> None:
        good_ns = int(search.problem.graph.time_ns * (1 + self.near))
        if self.start is not None:
            search.offer(self.start, "start")
        for name in self.starts:
            if search.best_ns <= good_ns:
                return
            search.start(name, limits)
        # Where moving is too slow to help, or recomputing is, little of the time goes to it.
        search.start("greedy", limits, 0.1)
        search.start("auto", limits, 0.2 if search.moves else 0.6)
        if not search.recomputes:
            search.start("swapadvisor", limits, 0.1)
        done = 0
        while time.monotonic() < search.deadline and search.best_ns > good_ns:
            if done == self.replays or search.since_best > self.patience:
                break
            if done % 3 == 0 and done < 3 * len(_FACTORS):
                search.replay(done // 3)
            elif done % 9 == 0:
                search.replay(len(_FACTORS))
            elif done % 2 and search.recomputes:
                search.move_instead()
            else:
                search.exchange()
            done += 1
        search.stats["replays"] = done


class _Search:
    """The best schedule so far, the price of a byte and of each tensor, and what to try next."""

    def __init__(self, problem: Problem, limits: Limits) -> None:
        self.problem, self.workload = problem, Workload(problem.graph)
        self.uses = uses_of(problem.graph)
        self.rng = random.Random(limits.seed)
        self.deadline = time.monotonic() + limits.time_s
        self.best: Schedule | None = None
        self.best_ns: float = float("inf")
        self.since_best = 0
        self.reason = ""
        self.stats: dict[str, float] = {}
        self.saved = list(dict.fromkeys(gap.tensor for gap in saved_gaps(problem.graph)))
        self.best_moved: frozenset[int] = frozenset()

    @property
    def moves(self) -> bool:
        """Whether the best schedule moves anything."""
        return bool(self.best_moved)

    @property
    def recomputes(self) -> bool:
        """Whether the best schedule runs anything twice."""
        return self.best is not None and self._repeats(sequence_of(self.best)) != []

    def start(self, name: str, limits: Limits, share: float = 0.3) -> None:
        """Look at the schedule of another solver, which gets a share of the time."""
        left_s = max(0.0, self.deadline - time.monotonic())
        asked = Limits(time_s=min(left_s, share * limits.time_s), seed=limits.seed)
        problem = self.problem
        if name in _RECOMPUTING:
            # With a tier, `auto` would ask this solver.
            problem = replace(problem, tiers=())
        answer = load_solver(name).solve(problem, asked)
        if answer.schedule is not None:
            self.offer(answer.schedule, name)
            self._polish(answer.schedule)
        elif not self.reason:
            self.reason = f"{name}: {answer.reason}"

    def _polish(self, schedule: Schedule) -> None:
        """Look at a schedule once more, without the recomputations that it does not need."""
        sequence = sequence_of(schedule)
        if len(sequence) == len(self.problem.graph.ops):
            return
        moves = moves_in(self.problem.graph, schedule)
        room_bytes = self.problem.budget_bytes - self.problem.tiers[0].buffer_bytes
        placed = place(self.problem, *self._pruned(sequence, moves, room_bytes))
        if placed.schedule is not None:
            self.offer(placed.schedule, "polished")

    def replay(self, k: int) -> None:
        """Let a replay choose; `k` counts the first ones, with given prices."""
        self.since_best += 1
        factor = _FACTORS[k] if k < len(_FACTORS) else self.rng.lognormvariate(0.0, 1.5)
        prices_ns = self._prices(factor, noisy=k >= len(_FACTORS))
        work = Workload(self.problem.graph, prices_ns)
        budget_bytes = self.problem.budget_bytes - self.problem.tiers[0].buffer_bytes
        most_runs = 4 * (len(self.problem.graph.ops) + len(work.reads)) + 1000
        weights = self._weights() if k >= len(_FACTORS) else Weights()
        quarter = time.monotonic() + (self.deadline - time.monotonic()) / 4
        order = Replay(work, budget_bytes, weights, float("inf"), most_runs, quarter).run()
        if order is None:
            return
        sequence, moves = split(work, order)
        for pruned in (True, False):
            tried = self._pruned(sequence, moves, budget_bytes) if pruned else (sequence, moves)
            placed = place(self.problem, *tried, Timing(lead=self.rng.choice((1.0, 1.2))))
            if placed.schedule is not None:
                self.offer(placed.schedule, "replays")
                return

    def exchange(self) -> None:
        """Change for a few tensors what the best schedule does with them."""
        self.since_best += 1
        if self.best is None or not self.saved:
            return
        graph, rng = self.problem.graph, self.rng
        sequence = sequence_of(self.best)
        made = set(numpy.flatnonzero(recomputed_tensors(self.workload, sequence)).tolist())
        moved = set(self.best_moved)
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            t = rng.choice(self.saved)
            one, other = (made, moved) if t in made else (moved, made)
            if t in one:
                one.remove(t)
                if rng.random() < 0.7:
                    other.add(t)
            else:
                (made if rng.random() < 0.5 else moved).add(t)
        made = {t for t in made if _again_ns(graph.ops, graph.producer[t]) < float("inf")}
        tried = kept_but(graph, frozenset(made), frozenset(moved))
        room_bytes = self.problem.budget_bytes - self.problem.tiers[0].buffer_bytes
        placed = place(self.problem, *self._pruned(*tried, room_bytes))
        if placed.schedule is not None:
            self.offer(placed.schedule, "exchanges")

    def move_instead(self) -> None:
        """Read back for a few recomputations of the best schedule what they make again."""
        self.since_best += 1
        assert self.best is not None
        graph, rng = self.problem.graph, self.rng
        sequence, moves = sequence_of(self.best), moves_in(graph, self.best)
        repeats = self._repeats(sequence)
        weights = [graph.ops[sequence[j]].time_ns + 1 for j in repeats]
        gone = set(rng.choices(repeats, weights, k=rng.choice((1, 1, 2, 4, 8))))
        lost = {t for j in gone for t in graph.ops[sequence[j]].outputs}
        there = [j not in gone for j in range(len(sequence))]
        shorter, kept = without_steps(sequence, moves, there)
        known = set(kept)
        also = [g for g in movable_gaps(graph, shorter) if g.tensor in lost and g not in known]
        room_bytes = self.problem.budget_bytes - self.problem.tiers[0].buffer_bytes
        placed = place(self.problem, *self._pruned(shorter, kept + also, room_bytes))
        if placed.schedule is not None:
            self.offer(placed.schedule, "moved_instead")

    @staticmethod
    def _repeats(sequence: Sequence[int]) -> list[int]:
        """Return the steps that run an op again."""
        seen: set[int] = set()
        again: list[int] = []
        for j, op in enumerate(sequence):
            if op in seen:
                again.append(j)
            seen.add(op)
        return again

    def offer(self, schedule: Schedule, found_by: str) -> None:
        if not is_valid(self.problem, schedule):
            return
        time_ns = simulate(self.problem.graph, schedule, self.problem.tiers).time_ns
        self.stats.setdefault(f"{found_by}_ns", time_ns)
        self.stats[f"{found_by}_ns"] = min(time_ns, self.stats[f"{found_by}_ns"])
        if time_ns < self.best_ns:
            self.best, self.best_ns, self.since_best = schedule, time_ns, 0
            self.best_moved = frozenset(s.tensor for s in schedule if isinstance(s, Prefetch))

    def _prices(self, factor: float, *, noisy: bool) -> dict[int, int]:
        """Return what it costs to move each tensor that is not better made again."""
        graph, tier = self.problem.graph, self.problem.tiers[0]
        lean = self.rng.choice((1.0, 0.5, 0.2)) if noisy else 1.0
        spread = self.rng.choice((0.0, 0.3, 0.8)) if noisy else 0.0
        prices_ns: dict[int, int] = {}
        for t in self.saved:
            nbytes = graph.tensors[t].nbytes
            lane_ns = factor * max(tier.write_ns(nbytes), tier.read_ns(nbytes))
            lane_ns *= self.rng.lognormvariate(0.0, spread)
            lane_ns *= lean if t in self.best_moved else 1.0 / lean
            if lane_ns < _again_ns(graph.ops, graph.producer[t]):
                prices_ns[t] = int(lane_ns)
        return prices_ns

    def _weights(self) -> Weights:
        rng = self.rng
        return Weights(
            cost=rng.uniform(0.3, 1.5),
            nbytes=rng.uniform(0.3, 1.5),
            distance=rng.choice((0.0, 0.5, 1.0, 1.0, 2.0, 4.0)),
            dead_first=rng.random() < 0.85,
            newest_first=rng.random() < 0.5,
            bias=numpy.array([rng.lognormvariate(0.0, 0.3) for _ in self.problem.graph.tensors]),
        )

    def _pruned(
        self, sequence: tuple[int, ...], moves: list[Move], budget_bytes: int
    ) -> tuple[Sequence[int], Collection[Move]]:
        """Take out recomputations that the budget does not need."""
        graph = self.problem.graph
        lives = Lives(self.uses, sequence)
        for move in moves:
            lives.live[move.out + 1 : move.back] -= graph.tensors[move.tensor].nbytes
        lives.prune(budget_bytes, keep={m.out for m in moves} | {m.back for m in moves})
        return without_steps(sequence, moves, lives.there.tolist())


def _again_ns(ops: Sequence[Op], source: int | None) -> float:
    """Time to make a tensor again from inputs that are there; infinite where it cannot be."""
    if source is None or not ops[source].recomputable:
        return float("inf")
    # Its inputs may be gone as well, so that more has to run than the op itself.
    return _CHAIN * (ops[source].time_ns + 1)


_RECOMPUTING = ("greedy", "auto")
"""Starts that are asked for a schedule without moves."""

_CHAIN = 3.0
"""How many ops one recomputation is taken for when it is compared with a move."""

_FACTORS = (1.0, 0.0, 0.3, 0.1, 3.0, 0.03, 0.01, 10.0, 30.0)
"""The first prices of a byte, as a share of the time of its lane; 0 moves all that it can."""
