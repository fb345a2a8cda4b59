"""Several solvers one after the other; the cheapest schedule and the best bound of all.

Source: none; the pipeline of this project.
Deviations: none.
Exact?: Where the bound meets the schedule; it stops before that within `Limits.gap`. The bound is
    that of the relaxation (`_relaxation`) or, on small graphs, of the stage model as well.
Complexity: That of its stages, within the time limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from memplan.planner.limits import below_limit, settled
from memplan.planner.memory_use import peak_rss_bytes
from memplan.planner.polish import polish
from memplan.planner.problem import Limits, Problem, Standing
from memplan.planner.schedule import Schedule, keeps_order, schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status, load_solver
from memplan.planner.verify import is_valid
from memplan.solvers._proof import Proof, Prover
from memplan.solvers._replay import prepare
from memplan.solvers._rounding import rounded


@dataclass(frozen=True, slots=True)
class Auto:
    """keep-all, quick peers, the relaxation rounded, greedy replays, a MILP, and replays again.

    The peers are published methods with a plan in a moment, so that none of them is better
    however short the time; large graphs do without. Far from the bound, replays get the time of
    proofs. On small graphs the MILP is Checkmate's, on others the windowed one. Where the order
    is free, other orders come first. Where there is a tier, `joint` does all of it.

    Attributes:
        exact_ops: Graphs of up to this many ops go to Checkmate.
        exact_share: The share of the time limit that Checkmate may take.
        start: A schedule to start from, ignored unless valid.
        reorder: Whether ops may run in another order than captured where that saves memory;
            steps captured from a model keep theirs all the same, for reasons named in `reorder`.
    """

    name: ClassVar[str] = "auto"
    kind: ClassVar[str] = "heuristic"
    source: ClassVar[str] = "quick peers, a relaxation, greedy replays led by it, a MILP"
    may: ClassVar[tuple[str, ...]] = ("keep", "recompute", "swap")

    exact_ops: int = 150
    exact_share: float = 0.3
    start: Schedule | None = field(default=None, repr=False)
    reorder: bool = True

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Return the best of all stages; on Ctrl-C, of those so far if there is a schedule."""
        if refusal := below_limit(problem):
            return refusal
        if problem.tiers:
            return load_solver("joint", start=self.start).solve(problem, limits)
        if answer := settled(problem):
            return answer
        prepare()
        began = time.monotonic()
        before_bytes = peak_rss_bytes()
        run = _Run(problem, limits, began)
        try:
            if self.start is not None and is_valid(problem, self.start):
                run.offer(self.start)
            self._stages(run)
        except KeyboardInterrupt:
            if run.best is None and run.other is None:
                raise
            run.reasons.append("Stopped by the user; this is the best schedule until then.")
        run.stats["memory_bytes"] = peak_rss_bytes() - before_bytes
        return run.solution()

    def _stages(self, run: _Run) -> None:
        if self.reorder:
            run.stage("reorder", 0.3)
            if run.is_done():
                return
        run.peers()
        feasible = run.round() and self._proven(run)
        hopeless = not feasible or run.best is None or run.other_ns <= run.bound_ns
        if run.other is not None and hopeless:
            # Nothing in captured order is better, or it is hard to find.
            run.another_order()
            return
        if not feasible or run.is_done():
            return
        run.replay("greedy", 0.4, run.leans)
        if run.best is None and not run.is_done():
            # Near the limit it takes a search for the smallest peak to find any.
            run.stage("greedy", 0.25, "lowest", lowest=True)
        if run.is_done():
            return
        small = len(run.problem.graph.ops) <= self.exact_ops
        # Where layers are alike a proof can take all the time there is, and saves little. Besides,
        # HiGHS may look at the clock too late.
        share = min(self.exact_share if small else 1.0, run.left - _FOR_REPLAYS)
        if share > 0:
            run.stage("checkmate" if small else "windowed", share, start=run.best)
        if run.other_ns < run.best_ns:
            run.another_order()
            return
        # Time that the MILP left goes to replays near the best schedule, as long as they help.
        before_ns = float("inf")
        while run.best_ns < before_ns and not run.is_done():
            before_ns = run.best_ns
            run.seed += 1
            run.replay("again", 1.0, ())

    def _proven(self, run: _Run) -> bool:
        """Raise the bound, with quick schedules on the way; return whether there may be any."""
        if run.is_done():
            return True
        if run.best is None:
            run.replay("quick", 0.25, (), first_found=True, replays=2)
        if not run.prove(share=0.1):
            return False
        if not run.is_done():
            run.replay("led", 0.2, run.leans, replays=4 * len(run.leans))
        # Far from the bound, a better one would not close the gap: replays are worth more.
        return run.is_done() or run.prove(share=0.03 if run.is_far() else 0.2, whole=True)


class _Run:
    """The best schedule and bounds of the stages so far."""

    def __init__(self, problem: Problem, limits: Limits, began: float) -> None:
        self.problem, self.limits = problem, limits
        self.seed = limits.seed
        self.began = began
        # What simulating once took is the measure of what happens after the last look at the time.
        spare_s = min(_SPARE * limits.time_s, _LAST_STEPS * (time.monotonic() - began))
        self.deadline = began + limits.time_s - spare_s
        self.best: Schedule | None = None
        self.best_ns = float("inf")
        self.other: Schedule | None = None
        """The best in another order than captured, only if it is better than `best`."""
        self.other_ns = float("inf")
        self.bound_ns = problem.graph.time_ns
        self.model_bound_ns: int | None = None
        self.refusal: Solution | None = None
        self.leans: tuple[tuple[float, ...], ...] = ()
        self.failures: list[str] = []
        self.prover = Prover(problem, limits)
        self.reasons: list[str] = []
        self.stats: dict[str, float] = {}

    @property
    def goal_ns(self) -> int:
        """A schedule as fast as this is good enough."""
        return int(self.bound_ns * (1 + self.limits.gap))

    @property
    def any_goal_ns(self) -> int:
        """The same in another order, in which only the time of every op is a bound."""
        return int(self.problem.graph.time_ns * (1 + self.limits.gap))

    def is_done(self) -> bool:
        """Whether the gap is closed, a proof says that nothing fits, or time is over."""
        near = self.best_ns <= self.goal_ns or self.other_ns <= self.any_goal_ns
        return near or self.refusal is not None or time.monotonic() >= self.deadline

    @property
    def left(self) -> float:
        """The share of the time limit that is left."""
        return (self.deadline - time.monotonic()) / self.limits.time_s

    def is_far(self) -> bool:
        """Whether a schedule is known and no proof will come near it."""
        return self.bound_ns * (1 + _FAR) < self.best_ns < float("inf")

    def _within(self, share: float) -> Limits:
        left_s = max(0.0, self.deadline - time.monotonic())
        time_s = min(left_s, share * self.limits.time_s)
        return replace(self.limits, time_s=time_s, seed=self.seed, watch=None)

    def _tell(self, stage: str, found_ns: int | None = None) -> None:
        """Tell who watches what is being done, and what is known."""
        if self.limits.watch is None:
            return
        known_ns = min(self.best_ns, self.other_ns)
        best_ns = min(known_ns, float("inf") if found_ns is None else found_ns)
        step_ns = self.problem.graph.time_ns
        self.limits.watch(
            Standing(
                stage=stage,
                step_ns=step_ns,
                best_ns=None if best_ns == float("inf") else int(best_ns),
                bound_ns=int(min(self.bound_ns, best_ns)),
            )
        )

    def prove(self, share: float, *, whole: bool = False) -> bool:
        """Bound all schedules by the relaxation; return whether one may exist."""
        self._tell("relaxation")
        time_s = self._within(share).time_s
        prover = self.prover
        return self._believe(prover.prove_whole(time_s) if whole else prover.prove(time_s))

    def round(self) -> bool:
        """Try what the relaxation lets go at the scarcest instant; return as `prove`."""
        began = time.monotonic()
        graph = self.problem.graph
        for sequence in rounded(self.problem, self.prover, began + self._within(0.3).time_s):
            self._believe(self.prover.proof(time.monotonic()))
            if self.best is None:
                self.stats["first_s"] = time.monotonic() - self.began
            time_ns = self.offer(schedule_of(graph, sequence))
            if time_ns <= self.best_ns:
                self.stats["round_overhead"] = time_ns / max(1, graph.time_ns) - 1
            if self.is_done():
                break
        possible = self._believe(self.prover.proof(time.monotonic()))
        self.stats["round_s"] = time.monotonic() - began
        return possible

    def _believe(self, proof: Proof) -> bool:
        """Note what is proven; return whether a schedule may exist."""
        self.bound_ns, self.leans = max(self.bound_ns, proof.bound_ns), proof.leans
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

    def peers(self) -> None:
        """Start from the plans of published methods that take little time, where there are any."""
        if len(self.problem.graph.ops) > _PEERS_OPS:
            return
        failures = len(self.failures)
        for name in _PEERS:
            if self.is_done():
                break
            self.stage(name, _PEER_SHARE)
        # That a peer has no plan says nothing of what there is.
        del self.failures[failures:]

    def another_order(self) -> None:
        """Spend the time that is left on other orders."""
        if self.other_ns <= self.any_goal_ns or time.monotonic() >= self.deadline:
            return
        self.seed += _MORE_SEEDS
        self.stage("reorder", 1.0, "another")

    def replay(
        self, label: str, share: float, leans: Sequence[tuple[float, ...]], **options: object
    ) -> None:
        """Run greedy replays, half of them led by `leans`."""
        options = {"leans": tuple(leans), "goal_ns": self.goal_ns, "start": self.best, **options}
        self.stage("greedy", share, label, **options)

    def stage(self, name: str, share: float, label: str = "", **options: object) -> None:
        """Ask the solver called `name`, for at most `share` of the time limit.

        Its figures are reported under its name, or under `label`.
        """
        label = label or name
        began = time.monotonic()
        self._tell(label)
        limits = self._within(share)
        if self.limits.watch is not None:
            limits = replace(limits, watch=lambda now: self._tell(label, now.best_ns))
        answer = load_solver(name, **options).solve(self.problem, limits)
        self.stats |= {f"{label}_{key}": value for key, value in answer.stats.items()}
        self.stats[f"{label}_s"] = time.monotonic() - began
        if answer.status is Status.INFEASIBLE:
            self.refusal = answer
            return
        self.bound_ns = max(self.bound_ns, answer.proven_bound_ns)
        self.model_bound_ns = answer.model_bound_ns or self.model_bound_ns
        if answer.schedule is None:
            self.failures.append(f"{label}: {answer.reason}")
            return
        if self.best is None:
            # Since the question was asked; a stage that does not say so counts in full.
            ended_s = time.monotonic() - began
            self.stats["first_s"] = began - self.began + answer.stats.get("first_s", ended_s)
        time_ns = self.offer(answer.schedule)
        self.stats[f"{label}_overhead"] = time_ns / max(1, self.problem.graph.time_ns) - 1
        self._tell(label)
        if answer.stats.get("interrupted"):
            raise KeyboardInterrupt

    def offer(self, schedule: Schedule) -> int:
        """Polish a schedule and keep it if it is the fastest so far; return its time."""
        graph = self.problem.graph
        polished = polish(graph, sequence_of(schedule), self.problem.budget_bytes)
        schedule = schedule_of(graph, polished)
        time_ns = simulate(graph, schedule).time_ns
        if not keeps_order(schedule):
            if time_ns < self.other_ns:
                self.other, self.other_ns = schedule, time_ns
        elif time_ns < self.best_ns:
            self.best, self.best_ns = schedule, time_ns
        return time_ns

    def solution(self) -> Solution:
        """Return the best schedule with the best bounds, or why there is none."""
        if self.other is not None and self.other_ns < self.best_ns:
            return self._in_other_order(self.other)
        if self.refusal is not None:
            return self.refusal
        status = Status.UNKNOWN
        if self.model_bound_ns is not None:
            # What holds for every schedule holds for those of the model.
            self.model_bound_ns = max(self.model_bound_ns, self.bound_ns)
            if self.model_bound_ns > self.best_ns:
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
            reason=" ".join(self.reasons)
            if self.best is not None
            else "; ".join(self.failures) or "time ran out",
            stats=self.stats,
        )

    def _in_other_order(self, schedule: Schedule) -> Solution:
        step_ns, time_ns = self.problem.graph.time_ns, int(self.other_ns)
        reason = "Ops run in another order than captured"
        bound_ns = self.bound_ns
        if self.refusal is not None:
            bound_ns = step_ns
            reason += ", in which no schedule fits; the proven bound holds for every order."
        elif time_ns < bound_ns:
            bound_ns = step_ns
            reason += (
                ", faster than in any schedule of that; the proven bound holds for every order."
            )
        elif bound_ns > step_ns:
            reason += "; the proven bound holds for the captured order only."
        else:
            reason += "."
        return Solution(
            status=Status.OPTIMAL if time_ns <= bound_ns else Status.FEASIBLE,
            schedule=schedule,
            proven_bound_ns=bound_ns,
            reason=" ".join((reason, *self.reasons)),
            stats=self.stats,
        )


_SPARE = 0.05
"""At most this share of the time limit is left for the last steps."""

_LAST_STEPS = 8.0
"""How many times as long as simulating a schedule the last steps take: polish and judge one."""

_FOR_REPLAYS = 0.08
"""Share of the time limit that the MILP leaves for the last replays."""

_PEERS = ("dtr", "rotor", "knapsack", "chen-greedy")
"""Methods with a plan in a moment, often a bad one, but here and there better than all replays."""

_PEERS_OPS = 3000
"""Larger graphs do without them: one plan may take seconds."""

_PEER_SHARE = 0.03
"""Share of the time limit that each may take."""

_FAR = 0.01
"""Beyond this share of the bound a proof hardly ends the search."""

_MORE_SEEDS = 100
"""Added to the seed where a stage runs again, so that nothing is tried twice."""
