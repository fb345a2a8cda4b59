"""What a solver is asked, and what it can say meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from memplan.graph_capture.graph import Graph
from memplan.planner.tiers import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Run `graph` with never more than `budget_bytes` on the device.

    Attributes:
        tiers: Where tensors may be moved to; a schedule names them by index.
    """

    graph: Graph
    budget_bytes: int
    tiers: tuple[Tier, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a solver is.

    Attributes:
        stage: What it is doing, in a word or two.
        step_ns: Time of the step without recomputation.
        best_ns: Time of the fastest schedule so far; None before the first.
        bound_ns: None within the budget is faster, as far as it is proven.
    """

    stage: str
    step_ns: int
    best_ns: int | None
    bound_ns: int

    @property
    def gap(self) -> float | None:
        """How much longer the best takes than the bound, as a fraction of that."""
        if self.best_ns is None or not self.bound_ns:
            return None
        return max(0, self.best_ns - self.bound_ns) / self.bound_ns


Watch: TypeAlias = Callable[[Standing], None]
"""Called whenever a solver begins a stage or finds something better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one solve may cost. Same limits and seed, same answer.

    Attributes:
        time_s: Deadline in seconds from the call.
        seed: Of every random choice.
        threads: That the solver may use.
        gap: A schedule proven to be within this share of the fastest will do, so that solvers
            with a proof may stop before the time is over; 0 to go on until it is the fastest.
        watch: Told how the solver gets on; it must not change anything. No part of a comparison.
    """

    time_s: float = 60.0
    seed: int = 0
    threads: int = 1
    gap: float = 3e-3
    watch: Watch | None = field(default=None, compare=False, repr=False)
