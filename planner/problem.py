"""What a solver is asked."""

from __future__ import annotations

from dataclasses import dataclass

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
class Limits:
    """What one solve may cost. Same limits and seed, same answer."""

    time_s: float = 60.0
    seed: int = 0
    threads: int = 1
