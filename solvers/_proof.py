"""What the relaxation of `_relaxation` proves about a problem, within a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Compute, schedule_of
from memplan.planner.simulate import simulate
from memplan.solvers._relaxation import Relaxation
from memplan.solvers.programs._linear_program import ProgramResult
from memplan.solvers.programs._milp import Outcome
from memplan.solvers.programs._stages import Stages

_MOST_INSTANTS, _MOST_LEANS = 16, 5
_KEEP = 30.0
"""Factor of what stays at the instant; its inverse is that of what goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What holds for every schedule of the captured order within the budget.

    Attributes:
        bound_ns: None is faster.
        minimum_bytes: Where there is none: the budget that any needs at least.
        leans: Hints to a heuristic: each has one factor for each tensor, small where the
            relaxation lets it go at the instant at which memory is scarcest. The first is for
            the budget, the others are for less, as recomputing takes room of its own.
        stats: Seconds and sizes.
    """

    bound_ns: int
    minimum_bytes: int | None = None
    leans: tuple[tuple[float, ...], ...] = ()
    stats: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


def scarce_ops(problem: Problem) -> list[int]:
    """Return ops at which keeping everything passes the budget, the worst first.

    At most 16, some distance apart.
    """
    graph = problem.graph
    plain = schedule_of(graph, range(len(graph.ops)))
    steps = zip(simulate(graph, plain).live_bytes, plain, strict=True)
    live = [nbytes for nbytes, step in steps if isinstance(step, Compute)]
    apart = max(2, len(live) // 60)
    chosen: list[int] = []
    for b in sorted(range(len(live)), key=lambda b: (-live[b], b)):
        if live[b] <= problem.budget_bytes or len(chosen) == _MOST_INSTANTS:
            break
        if all(abs(b - other) >= apart for other in chosen):
            chosen.append(b)
    return chosen


def prove(problem: Problem, limits: Limits) -> Proof:
    """Bound the time of every schedule of the captured order.

    First a linear program for one instant after each of `scarce_ops`, then with integrality for
    the best of these, and for the four best together.

    Raises:
        KeyboardInterrupt: The user stopped it.
        SolverUnavailable: HiGHS is not installed.
    """
    began = time.monotonic()
    prover = Prover(problem, limits)
    prover.look(1.0, limits.time_s / 4)
    proof = prover.prove(limits.time_s / 4)
    if proof.minimum_bytes is not None:
        return proof
    return prover.prove_whole(limits.time_s - (time.monotonic() - began))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drops:
    """What the relaxation lets go at one instant.

    Attributes:
        end: The instant: how many ops ran for the first time before it.
        lost: (tensors,) which are not on the device then, and have to be made again.
        room_bytes: What the budget leaves beside the op before the instant.
    """

    end: int
    lost: tuple[bool, ...]
    room_bytes: int


class Prover:
    """The proof in steps, the quickest first."""

    def __init__(self, problem: Problem, limits: Limits) -> None:
        self.search = _Search(problem, limits)
        self.scarce = scarce_ops(problem)
        self.stats: dict[str, float] = {"relaxation_s": 0.0}

    def look(
        self, share: float, time_s: float, kept: frozenset[int] = frozenset()
    ) -> Drops | None:
        """Solve the linear program of the scarcest instant, where `share` of the room is used.

        The whole room gives a bound; what is left of it is for the recomputations. The tensors
        of `kept` have to be there; with any of them there is no bound.
        """
        began = time.monotonic()
        self.search.deadline = began + time_s
        drops = self.search.look(self.scarce[0], share, kept) if self.scarce else None
        self.stats["relaxation_s"] += time.monotonic() - began
        return drops

    def prove(self, time_s: float) -> Proof:
        """Bound by linear programs of one instant each."""
        began = time.monotonic()
        search = self.search
        search.deadline = began + time_s
        self.scarce = search.rank(self.scarce)
        time_ns = search.problem.graph.time_ns
        self.stats["relaxation_lp_bound"] = search.bound_ns / max(1, time_ns) - 1
        proof = self.proof(began)
        self.stats["relaxation_lp_s"] = self.stats["relaxation_s"]
        return proof

    def prove_whole(self, time_s: float) -> Proof:
        """Bound with integrality, by the best instant of `prove` and by the four best."""
        began = time.monotonic()
        self.search.deadline = began + time_s
        for instants in (self.scarce[:1], self.scarce[:4]):
            self.search.solve(instants)
        return self.proof(began)

    def proof(self, began: float) -> Proof:
        """Return what is known; since `began` time went into it."""
        search = self.search
        infeasible = search.infeasible
        minimum_bytes = search.minimum_bytes(self.scarce[:1]) if infeasible else None
        self.stats["relaxation_s"] += time.monotonic() - began
        return Proof(
            bound_ns=search.bound_ns,
            minimum_bytes=minimum_bytes,
            leans=tuple(dict.fromkeys(search.leans)),
            stats=dict(self.stats),
        )


class _Search:
    """The best bound so far."""

    def __init__(self, problem: Problem, limits: Limits) -> None:
        self.problem, self.limits = problem, limits
        self.deadline = 0.0
        self.stages = Stages(problem.graph)
        self.bound_ns = problem.graph.time_ns
        self.infeasible = False
        self.bounds: dict[int, float] = {}
        """By the op before the instant."""
        self.leans: list[tuple[float, ...]] = []

    def _left_s(self) -> float:
        return self.deadline - time.monotonic()

    def _note(self, relaxation: Relaxation, result: ProgramResult, *, integral: bool) -> None:
        self.infeasible |= result.outcome is Outcome.INFEASIBLE
        self.bound_ns = max(self.bound_ns, relaxation.bound_ns(result, integral=integral))

    def rank(self, scarce: list[int]) -> list[int]:
        """Return the ops of `scarce`, that with the best bound by one instant first."""
        for b in scarce:
            if self.infeasible or (self.bounds and self._left_s() <= 0):
                break
            if b in self.bounds:
                continue
            best = max(self.bounds.values(), default=-math.inf)
            relaxation = Relaxation(self.problem, self.stages, [b + 1])
            result = relaxation.program.relax(self._left_s(), self.limits.seed)
            self._note(relaxation, result, integral=False)
            if result.values and result.bound > best:
                self.leans.insert(0, _lean(relaxation, b + 1, result.values))
            self.bounds[b] = result.bound
        return sorted(scarce, key=lambda b: (-self.bounds.get(b, -math.inf), scarce.index(b)))

    def look(self, op: int, share: float, kept: frozenset[int]) -> Drops | None:
        """Note and return what stays after `op` in `share` of the room beside what it uses."""
        if self.infeasible or self._left_s() <= 0:
            return None
        relaxation = Relaxation(self.problem, self.stages, [op + 1], room=share)
        relaxation.keep(op + 1, kept)
        result = relaxation.program.relax(self._left_s(), self.limits.seed)
        if share == 1.0 and not kept:
            self._note(relaxation, result, integral=False)
            self.bounds[op] = result.bound
        if not result.values:
            return None
        if len(self.leans) < _MOST_LEANS:
            self.leans.append(_lean(relaxation, op + 1, result.values))
        return _drops(relaxation, op + 1, result.values)

    def solve(self, ops: list[int]) -> None:
        """Bound with integrality by the instants after `ops`; note what stays after the first."""
        if not ops or self.infeasible or self._left_s() <= 0:
            return
        relaxation = Relaxation(self.problem, self.stages, [b + 1 for b in ops])
        # A quarter of the gap that will do: the rest is for the schedule.
        slack = self.limits.gap / 4 * self.problem.graph.time_ns / relaxation.scale.unit_ns
        result = relaxation.program.solve(
            self._left_s(), self.limits.threads, self.limits.seed, slack=slack
        )
        self._note(relaxation, result, integral=True)
        if result.values:
            self.leans.insert(0, _lean(relaxation, ops[0] + 1, result.values))

    def minimum_bytes(self, ops: list[int]) -> int | None:
        """Return what any schedule needs, by the relaxation with the budget as a variable."""
        relaxation = Relaxation(self.problem, self.stages, [b + 1 for b in ops], least=True)
        bound = relaxation.program.relax(max(1.0, self._left_s()), self.limits.seed).bound
        least_bytes = math.floor(bound * relaxation.unit_bytes)
        return least_bytes if least_bytes > self.problem.budget_bytes else None


def _lean(relaxation: Relaxation, instant: int, values: Sequence[float]) -> tuple[float, ...]:
    """Return a factor for each tensor: above 1 where it stays, below where it goes."""
    at = relaxation.edges.index(instant)
    columns = (relaxation.x.get((at, t)) for t in range(len(relaxation.graph.tensors)))
    return tuple(
        1.0 if column is None else _KEEP ** (2.0 * min(1.0, max(0.0, values[column])) - 1.0)
        for column in columns
    )


def _drops(relaxation: Relaxation, instant: int, values: Sequence[float]) -> Drops:
    """Return what goes; what the linear program keeps in part goes, as room is what is scarce."""
    graph = relaxation.graph
    at = relaxation.edges.index(instant)
    lost = [False] * len(graph.tensors)
    for (j, t), column in relaxation.x.items():
        source = graph.producer[t]
        if j == at and source is not None and graph.ops[source].recomputable:
            lost[t] = values[column] < _WHOLE
    room = relaxation.budget - relaxation.need(instant - 1)
    return Drops(
        end=instant, lost=tuple(lost), room_bytes=max(0, int(room * relaxation.unit_bytes))
    )


_WHOLE = 1 - 1e-3
