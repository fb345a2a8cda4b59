"""What machines read: the objects that the commands print with `--json`; their keys are stable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memplan.errors import SolverUnavailable
from memplan.planner.plan import Plan
from memplan.planner.schedule import sequence_of
from memplan.planner.solver import load_solver

if TYPE_CHECKING:
    from memplan.codegen.check import Check


def plan_result(plan: Plan, seconds: Mapping[str, float], check: Check | None) -> dict[str, Any]:
    """Return a plan and, where it was checked, what the check found.

    Args:
        plan: The plan.
        seconds: Time of each stage by name.
        check: What `--verify` found.
    """
    result: dict[str, Any] = plan.summary()
    result["bytes"] = result.pop("bytes_at_peak")
    result["modules"] = dict(plan.modules_at_peak)
    result["ops"] = len(plan.graph.ops)
    result["tensors"] = len(plan.graph.tensors)
    result["solve_seconds"] = plan.solve_seconds
    result["capture_seconds"] = seconds.get("capturing", 0.0)
    result["profile_seconds"] = seconds.get("profiling operations", 0.0)
    result["notes"] = list(plan.notes)
    if check is not None:
        result["verify"] = {
            "measured_peak_bytes": check.measured_peak_bytes,
            "unplanned_measured_peak_bytes": check.unplanned_measured_peak_bytes,
            "step_time_ratio": check.step_time_ratio,
            "gradients_identical": check.gradients_identical,
            "losses_identical": check.losses_identical,
            "state_identical": check.state_identical,
        }
    return result


def solve_result(plan: Plan) -> dict[str, Any]:
    """Return a plan in the units of the instance that it was made for."""
    return {
        "cost": plan.planned_time_ns,
        "peak": plan.planned_peak_bytes,
        "proven_bound": plan.proven_bound_ns,
        "model_bound": plan.model_bound_ns,
        "status": plan.status.value,
        "seconds": plan.solve_seconds,
        "solver": plan.solver,
        "sequence": list(sequence_of(plan.schedule)),
    }


def solver_result(name: str) -> dict[str, Any]:
    """Return what is known about an installed solver, also where it cannot be imported."""
    try:
        solver = load_solver(name)
    except SolverUnavailable as error:
        return {
            "name": name,
            "kind": "unknown",
            "exact": False,
            "source": str(error),
            "may": [],
            "available": False,
        }
    return {
        "name": name,
        "kind": solver.kind,
        "exact": solver.kind == "exact",
        "source": solver.source,
        "may": list(getattr(solver, "may", ("keep", "recompute"))),
        "available": True,
    }
