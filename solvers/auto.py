"""Several solvers one after the other; the cheapest schedule and the best bound of all.

Source: none; the pipeline of this project.
Deviations: none.
Exact?: Where the bound meets the schedule. The bound is that of the relaxation (`_relaxation`) or,
    on small graphs, of the stage model as well.
Complexity: That of its stages, within the time limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from memplan.graph_capture.graph import Graph
from memplan.planner.limits import below_limit
from memplan.planner.polish import polish
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver
from memplan.solvers._proof import Proof, prove


@dataclass(frozen=True, slots=True)
class Auto:
    """keep-all, the relaxation, greedy replays that follow it, a MILP, and replays again.

    On small graphs the MILP is Checkmate's, on others the windowed one. Where there is a tier to
    move tensors to, `joint` does all of it.

    Attributes:
        exact_ops: Graphs of up to this many ops go to Checkmate.
        exact_share: The share of the time limit that Checkmate may take.
        gap: No further stage starts once a schedule is proven within this share of the bound.
        near: Within this share of the bound, stages get little time: there is little to gain.
    """

    name: ClassVar[str] = "auto"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "keep-all, a relaxation, greedy replays led by it, then a MILP"
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    exact_ops: int = 150
    exact_share: float = 0.3
    gap: float = 0.0002
    near: float = 0.001

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best of all stages; on Ctrl-C, of those so far if there is a schedule."""
        if refusal := below_limit(problem):
            return refusal
        if problem.tiers:
            return load_solver("joint").solve(problem, limits)
        plain = load_solver("keep-all").solve(problem, limits)
        if plain.status is Status.OPTIMAL:
            return plain
        run = _Run(problem, limits, self.gap, self.near)
        try:
            self._stages(run)
        except KeyboardInterrupt:
            if run.best is None:
                raise
        return run.solution()

    def _stages(self, run: _Run) -> None:
        if not run.prove(share=0.2) or run.is_done():
            return
        run.replay("greedy", 0.4, run.leans)
        if run.is_done():
            return
        small = len(run.problem.graph.ops) <= self.exact_ops
        # Where layers are alike a proof can take all the time there is, and saves little.
        share = self.exact_share if small else 1.0
        run.stage("checkmate" if small else "windowed", share, start=run.best)
        if run.best is not None and not run.is_done():
            # Time that the MILP left goes to replays near the best schedule.
            run.seed += 1
            run.replay("again", 1.0, (_lean_to(run.problem.graph, sequence_of(run.best)),))


class _Run:
    """The best schedule and bounds of the stages so far."""

    def __init__(self, problem: Problem, limits: Limits, gap: float, near: float) -> None:
        self.problem, self.limits, self.gap, self.near = problem, limits, gap, near
        self.seed = limits.seed
        self.deadline = time.monotonic() + limits.time_s
        self.best: Schedule | None = None
        self.best_ns = float("inf")
        self.bound_ns = problem.graph.time_ns
        self.model_bound_ns: int | None = None
        self.refusal: Solution | None = None
        self.leans: tuple[tuple[float, ...], ...] = ()
        self.reasons: list[str] = []
        self.stats: dict[str, float] = {}

    @property
    def goal_ns(self) -> int:
        """A schedule as fast as this is good enough."""
        return int(self.bound_ns * (1 + self.gap))

    def is_done(self) -> bool:
        """Whether the gap is closed, a proof says that nothing fits, or time is over."""
        near = self.best_ns <= self.goal_ns
        return near or self.refusal is not None or time.monotonic() >= self.deadline

    @property
    def near_ns(self) -> int:
        """A schedule as fast as this leaves little to gain."""
        return int(self.bound_ns * (1 + self.near))

    def _within(self, share: float) -> Limits:
        if self.best_ns <= self.near_ns:
            share = min(share, _LITTLE)
        left_s = max(0.0, self.deadline - time.monotonic())
        time_s = min(left_s, share * self.limits.time_s)
        return Limits(time_s=time_s, seed=self.seed, threads=self.limits.threads)

    def prove(self, share: float) -> bool:
        """Bound all schedules by the relaxation; return whether one may exist."""
        proof: Proof = prove(self.problem, self._within(share))
        self.bound_ns, self.leans = proof.bound_ns, proof.leans
        self.stats |= proof.stats
        if proof.minimum_bytes is None:
            return True
        self.refusal = Solution(
            status=Status.INFEASIBLE,
            minimum_bytes=proof.minimum_bytes,
            proven_bound_ns=self.problem.graph.time_ns,
            reason=f"every schedule of the captured order needs {proof.minimum_bytes:,} bytes",
            stats=self.stats,
        )
        return False

    def replay(self, label: str, share: float, leans: Sequence[tuple[float, ...]]) -> None:
        """Run greedy replays, half of them led by `leans`."""
        goals = {"goal_ns": self.goal_ns, "near_ns": self.near_ns}
        self.stage("greedy", share, label, leans=tuple(leans), **goals)

    def stage(self, name: str, share: float, label: str = "", **options: object) -> None:
        """Ask the solver called `name`, for at most `share` of the time limit.

        Its figures are reported under its name, or under `label`.
        """
        label = label or name
        began = time.monotonic()
        answer = load_solver(name, **options).solve(self.problem, self._within(share))
        self.stats |= {f"{label}_{key}": value for key, value in answer.stats.items()}
        self.stats[f"{label}_s"] = time.monotonic() - began
        if answer.status is Status.INFEASIBLE:
            self.refusal = answer
            return
        self.bound_ns = max(self.bound_ns, answer.proven_bound_ns)
        self.model_bound_ns = answer.model_bound_ns or self.model_bound_ns
        if answer.schedule is None:
            self.reasons.append(f"{label}: {answer.reason}")
            return
        graph = self.problem.graph
        polished = polish(graph, sequence_of(answer.schedule), self.problem.budget_bytes)
        schedule = schedule_of(graph, polished)
        time_ns = simulate(graph, schedule).time_ns
        self.stats[f"{label}_overhead"] = time_ns / max(1, graph.time_ns) - 1
        if time_ns < self.best_ns:
            self.best, self.best_ns = schedule, time_ns

    def solution(self) -> Solution:
        """Return the best schedule with the best bounds, or why there is none."""
        if self.refusal is not None:
            return self.refusal
        status = Status.UNKNOWN
        if self.model_bound_ns is not None and self.model_bound_ns > self.best_ns:
            # The schedule is none of that model's.
            self.model_bound_ns = None
        if self.best is not None:
            proven = self.best_ns <= self.bound_ns
            status = Status.OPTIMAL if proven else Status.FEASIBLE
        return Solution(
            status=status,
            schedule=self.best,
            proven_bound_ns=self.bound_ns,
            model_bound_ns=self.model_bound_ns,
            reason="" if self.best is not None else "; ".join(self.reasons) or "time ran out",
            stats=self.stats,
        )


def _lean_to(graph: Graph, sequence: Sequence[int]) -> tuple[float, ...]:
    """Return small factors for the tensors that `sequence` makes more than once, else large."""
    seen: set[int] = set()
    made_again: set[int] = set()
    for op in sequence:
        if op in seen:
            made_again.update(graph.ops[op].outputs)
        seen.add(op)
    return tuple(_GO if t in made_again else 1.0 / _GO for t in range(len(graph.tensors)))


_LITTLE = 0.1
"""Share of the time limit for a stage that starts near the bound."""

_GO = 0.2
"""Factor of what goes; its inverse is that of what stays."""
