"""A portfolio of greedy replays: what was found, and with what weights to try next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from memplan.planner.compiled import Flags, Floats
from memplan.planner.problem import Problem, Standing
from memplan.planner.prune import pruned
from memplan.planner.step_events import uses_of
from memplan.solvers._exchange import exchanged
from memplan.solvers._replay import (
    CIRCLES,
    SMALL,
    Replay,
    Weights,
    Workload,
    recomputed_tensors,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """A sequence within the budget.

    Attributes:
        extra_ns: What it takes more than running every op once.
        pruned_ns: The same before exchanges.
        raw_ns: The same before pruning.
        weights: What it was found with; None where it is from elsewhere.
        again: (tensors,) what it makes again.
    """

    sequence: tuple[int, ...]
    extra_ns: int
    pruned_ns: int
    raw_ns: int
    weights: Weights | None
    again: Flags


class Portfolio:
    """The best sequence, and the one to try near by.

    Without a better one for long, the search starts anew, elsewhere.

    Args:
        problem: What is planned.
        rng: Where weights are drawn from.
        deadline: When to end, by `time.monotonic`.
        leans: See `Greedy`.
        quick: Whether the first schedule is all that is wanted.

    Attributes:
        best: The fastest so far.
        pruned: The sequences met so far that were worth pruning.
        starts: How often the search started.
        first_s: When the first was found.
    """

    def __init__(
        self,
        problem: Problem,
        rng: numpy.random.Generator,
        deadline: float,
        leans: tuple[tuple[float, ...], ...],
        quick: bool,
    ) -> None:
        self.problem, self.rng, self.deadline = problem, rng, deadline
        self.quick = quick
        self.leans = [numpy.array(lean) for lean in leans]
        self.work = Workload(problem.graph)
        self.uses = uses_of(problem.graph)
        self.best: Found | None = None
        self.pruned: set[tuple[int, ...]] = set()
        self.starts, self.first_s = 1, 0.0
        self._near: Found | None = None
        """The fastest since the search started."""
        self._since = 0
        """Replays since `_near` was found."""
        self._began = time.monotonic()

    @property
    def best_ns(self) -> float:
        """Time of the best schedule; infinite where there is none."""
        return float("inf") if self.best is None else self._step_ns + self.best.extra_ns

    @property
    def _step_ns(self) -> int:
        return self.problem.graph.time_ns

    def standing(self) -> Standing:
        """Return how far the search is."""
        best_ns = None if self.best is None else int(self.best_ns)
        return Standing(
            stage="greedy", step_ns=self._step_ns, best_ns=best_ns, bound_ns=self._step_ns
        )

    def begin(self, sequence: tuple[int, ...]) -> None:
        """Take a sequence as the best so far."""
        extra_ns = self._extra_ns(sequence)
        raw_ns = int(_UNPRUNED * extra_ns)
        self._near = self.best = self._found(sequence, extra_ns, raw_ns, None)

    def replay(self, k: int) -> bool:
        """Try once more; `k` counts the tries. Return whether it is the best so far."""
        self._since += 1
        if self._near is not None and self._since > _PATIENCE:
            self._near, self._since = None, 0
            self.starts += 1
        weights = self._leaning(k // 2) if self.leans and k % 2 == 0 else self._any(k)
        sequence = self._walked(weights, k)
        if sequence is None or sequence in self.pruned:
            return False
        self.pruned.add(sequence)
        budget_bytes, near = self.problem.budget_bytes, self._near
        raw_ns = self._extra_ns(sequence)
        sequence = pruned(self.uses, sequence, budget_bytes)
        pruned_ns = self._extra_ns(sequence)
        if near is not None and pruned_ns > _WORTH * near.pruned_ns:
            return False
        if not self.quick:
            sequence = exchanged(self.uses, sequence, budget_bytes, self._until())
        if near is not None and self._extra_ns(sequence) >= near.extra_ns:
            return False
        if self.best is None:
            self.first_s = time.monotonic() - self._began
        self._near, self._since = self._found(sequence, pruned_ns, raw_ns, weights), 0
        if self.best is not None and self._near.extra_ns >= self.best.extra_ns:
            return False
        self.best = self._near
        return True

    def _walked(self, weights: Weights, k: int) -> tuple[int, ...] | None:
        ops = len(self.problem.graph.ops)
        # What is far above the best, even before it was pruned, hardly comes first.
        most = float("inf")
        if self.best is not None:
            most = _MOST * self.best.raw_ns
        # Until one fits, a replay that goes in circles must not take the time of those after it.
        patient = self.best is None and k >= 2 * len(FIRST)
        most_runs = (8 if patient else 3) * ops + 1000
        budget_bytes = self.problem.budget_bytes
        replay = Replay(self.work, budget_bytes, weights, most, most_runs, self._until())
        return replay.run(CIRCLES if ops < SMALL else None)

    def _found(
        self, sequence: tuple[int, ...], pruned_ns: int, raw_ns: int, weights: Weights | None
    ) -> Found:
        return Found(
            sequence=sequence,
            extra_ns=self._extra_ns(sequence),
            pruned_ns=pruned_ns,
            raw_ns=raw_ns,
            weights=weights,
            again=recomputed_tensors(self.work, sequence),
        )

    def _extra_ns(self, sequence: Sequence[int]) -> int:
        return int(self.uses.time_ns[list(sequence)].sum()) - self._step_ns

    def _until(self) -> float:
        """Return when the next replay has to end: after half of the time left, or a quarter."""
        now = time.monotonic()
        return now + (self.deadline - now) / (2 if self.best is None else 4)

    def _leaning(self, k: int) -> Weights:
        """Return weights that follow one of `leans`, the first times plainly, then with noise."""
        turn, lean = k // len(self.leans), self.leans[k % len(self.leans)]
        if turn < len(_SHARPNESS):
            return Weights(bias=lean ** _SHARPNESS[turn])
        rng = self.rng
        noise = rng.lognormal(0.0, rng.choice((0.1, 0.3, 0.6)), len(lean))
        return Weights(
            cost=rng.uniform(0.5, 1.5),
            nbytes=rng.uniform(0.5, 1.5),
            distance=rng.choice((0.5, 1.0, 1.0, 2.0)),
            dead_first=rng.random() < 0.7,
            newest_first=rng.random() < 0.5,
            bias=lean ** rng.uniform(0.2, 2.0) * noise,
        )

    def _any(self, k: int) -> Weights:
        """Return one of the first weights, or draw some."""
        at = k // 2 if self.leans else k
        return FIRST[at] if at < len(FIRST) else self._weights()

    def _weights(self) -> Weights:
        """Draw the next weights: afresh, or near the best ones and leaning to its plan."""
        rng, near = self.rng, self._near
        bias = noise(rng, len(self.problem.graph.tensors))
        if near is None or rng.random() >= _NEAR:
            return drawn(rng, bias)
        swapped = rng.random(len(bias)) < rng.choice((0.0, 0.05, 0.15))
        bias[near.again != swapped] *= rng.choice((0.3, 0.1, 0.03, 0.01))
        if near.weights is None:
            return drawn(rng, bias)
        return Weights(
            cost=near.weights.cost * rng.uniform(0.8, 1.25),
            nbytes=near.weights.nbytes * rng.uniform(0.8, 1.25),
            distance=near.weights.distance * rng.uniform(0.8, 1.25),
            dead_first=near.weights.dead_first,
            newest_first=near.weights.newest_first,
            bias=bias,
        )


def noise(rng: numpy.random.Generator, tensors: int) -> Floats:
    """Draw a factor for each tensor."""
    return rng.lognormal(0.0, rng.choice((0.0, 0.1, 0.3, 0.6)), tensors)


def drawn(rng: numpy.random.Generator, bias: Floats) -> Weights:
    """Draw weights that owe nothing to what was found so far."""
    return Weights(
        cost=rng.uniform(0.2, 1.6),
        nbytes=rng.uniform(0.2, 1.6),
        distance=rng.choice((0.0, 0.5, 1.0, 1.0, 2.0, 4.0)),
        dead_first=rng.random() < 0.85,
        newest_first=rng.random() < 0.5,
        bias=bias,
    )


FIRST = (
    Weights(),
    Weights(newest_first=True),
    Weights(dead_first=False),
    Weights(distance=0.0),
    Weights(cost=0.5, distance=0.5),
)
"""What is tried first: the plain rule and its variants."""

_WORTH = 1.02
"""Exchanges may make the best of what takes no longer than this, as a share of the best's extra
time before its own exchanges."""

_NEAR = 0.7
"""Share of the drawn weights that are near what was found."""

_PATIENCE = 150
"""Replays without a better one before the search starts anew."""

_MOST = 1.25
"""A replay is given up beyond this share of the best's extra time before pruning."""

_UNPRUNED = 1.2
"""What a schedule from elsewhere is taken to have been before pruning."""

_SHARPNESS = (1.0, 0.5, 2.0, 0.25)
"""Exponents of a lean in the first replays that follow it."""
