"""Small nets whose saved tensors are all moved, at the smallest budget that allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from memplan.codegen.backend import Backend
from memplan.codegen.optimized_module import OptimizedModule
from memplan.codegen.swap.places import SwapPlaces
from memplan.graph_capture.annotate import with_costs, with_optimizer
from memplan.graph_capture.devices import find_device
from memplan.graph_capture.graph import Graph
from memplan.graph_capture.joint import JointGraph
from memplan.graph_capture.measured_profiler import MeasuredProfiler
from memplan.graph_capture.optimizer_state import optimizer_bytes
from memplan.planner.moves import Timing, gaps_of, place
from memplan.planner.plan import Plan
from memplan.planner.problem import Problem
from memplan.planner.schedule import Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify
from tests.nets import CASES

ON_TIME = Timing()


def tier_called(name: str, bytes_per_s: int = 10**9) -> Tier:
    """Return a tier for small nets: the buffers of the disk are as small as they can be."""
    return Tier(
        name=name,
        capacity_bytes=10**9,
        write_bytes_per_s=bytes_per_s,
        read_bytes_per_s=bytes_per_s,
        buffer_bytes=8192 if name == "disk" else 0,
    )


def tightest(graph: Graph, tier: Tier, timing: Timing) -> tuple[int, Schedule]:
    """Return the smallest budget that moving saved tensors can meet, and the schedule."""
    order = range(len(graph.ops))
    moves = [gap for gap in gaps_of(graph, order) if gap.out < graph.boundary <= gap.back]
    refused_bytes, budget_bytes = 0, 2 * simulate(graph, schedule_of(graph, order)).peak_bytes
    best: Schedule = ()
    while budget_bytes - refused_bytes > 1:
        middle = (refused_bytes + budget_bytes) // 2
        asked = Problem(graph=graph, budget_bytes=middle, tiers=(tier,))
        placed = place(asked, order, moves, timing)
        if placed.schedule is None:
            refused_bytes = middle
        else:
            budget_bytes, best = middle, placed.schedule
    return budget_bytes, best


def moving_plan(
    model: torch.nn.Module, tier: Tier, timing: Timing
) -> Callable[[JointGraph], Plan]:
    """Return what makes such a plan of the joint graph of `model`, under AdamW."""

    def plan(joint: JointGraph) -> Plan:
        graph = with_costs(joint.graph, joint.nodes, MeasuredProfiler(device=find_device("cpu")))
        trained = [p for n, p in model.named_parameters() if n in joint.trained]
        graph = with_optimizer(graph, optimizer_bytes("adamw", trained))
        budget_bytes, schedule = tightest(graph, tier, timing)
        verify(Problem(graph=graph, budget_bytes=budget_bytes, tiers=(tier,)), schedule)
        return Plan(
            graph=graph,
            schedule=schedule,
            budget_bytes=budget_bytes,
            status=Status.FEASIBLE,
            solver="test",
            proven_bound_ns=0,
            tiers=(tier,),
        )

    return plan


def moved(
    case: str,
    tier: Tier,
    folder: Path | None = None,
    timing: Timing = ON_TIME,
    *,
    emulates_link: bool = False,
) -> tuple[OptimizedModule, tuple[Any, ...]]:
    """Return the net `case` of `tests.nets` with such a plan, and its inputs."""
    torch.manual_seed(0)
    model, args = CASES[case].make(), CASES[case].args()
    backend = Backend(
        moving_plan(model, tier, timing), SwapPlaces(folder, emulates_link=emulates_link)
    )
    module = OptimizedModule(model, first, backend)
    module.plan_for(*args)
    return module, args


def first(output: object) -> torch.Tensor:
    """Return the first output, of a net that may have several."""
    value = output[0] if isinstance(output, tuple) else output
    assert isinstance(value, torch.Tensor)
    return value
