"""One graph, many budgets: the curve of time against memory, and its knee."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memplan.errors import InfeasibleBudget, SolverStopped
from memplan.graph_capture.graph import Graph
from memplan.planner.pipeline import make_plan
from memplan.planner.plan import Plan
from memplan.planner.problem import Limits

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """What a budget of a sweep came to.

    Attributes:
        budget: As it was asked for.
        plan: The plan; None where none was found.
        reason: Why there is none.
        feasible_bytes: Where there is none: the smallest budget known to be feasible.
        limit_bytes: Where there is none: proven, no plan has a smaller peak.
    """

    budget: str
    plan: Plan | None
    reason: str = ""
    feasible_bytes: int | None = None
    limit_bytes: int | None = None


def sweep(
    graph: Graph,
    budgets: Sequence[str],
    *,
    solver: str = "auto",
    limits: Limits = Limits(),  # noqa: B008  frozen, so one object can serve every call
    progress: Progress | None = None,
) -> list[SweepPoint]:
    """Plan one graph for each budget; a budget that cannot be met is a point without a plan.

    Raises:
        BudgetSyntaxError: A budget cannot be read.
        UnknownSolver: No installed package offers the solver.
    """
    points: list[SweepPoint] = []
    for done, budget in enumerate(budgets):
        if progress is not None:
            progress("solving", done, len(budgets))
        try:
            plan = make_plan(graph, budget, solver=solver, limits=limits)
            points.append(SweepPoint(budget=budget, plan=plan))
        except (InfeasibleBudget, SolverStopped) as error:
            proven = isinstance(error, InfeasibleBudget)
            points.append(
                SweepPoint(
                    budget=budget,
                    plan=None,
                    reason="no plan fits" if proven else "no plan was found in time",
                    feasible_bytes=error.feasible_bytes,
                    limit_bytes=error.limit_bytes,
                )
            )
    return points


def pareto(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Return the planned points that no other beats in both peak and time, largest peak first."""
    planned = [(p.plan.planned_peak_bytes, p.plan.planned_time_ns, p) for p in points if p.plan]
    best: list[SweepPoint] = []
    least_ns: int | None = None
    for _, time_ns, point in sorted(planned, key=lambda item: item[:2]):
        if least_ns is None or time_ns < least_ns:
            best.append(point)
            least_ns = time_ns
    return best[::-1]


def knee(points: Sequence[SweepPoint]) -> SweepPoint | None:
    """Return the point after which less memory gets dear, or None where the curve has no bend.

    It is the point of the Pareto curve farthest below the line between the curve's ends, both
    axes scaled to the ends (Satopaa, Albrecht, Irwin, Raghavan, 2011: "kneedle", unsmoothed).
    """
    curve = pareto(points)
    plans = [point.plan for point in curve if point.plan is not None]
    if len(plans) < 3:
        return None
    most, least = plans[0], plans[-1]
    width = most.planned_peak_bytes - least.planned_peak_bytes
    height = least.planned_time_ns - most.planned_time_ns
    if width == 0 or height == 0:
        return None

    def depth(plan: Plan) -> float:
        saved = (most.planned_peak_bytes - plan.planned_peak_bytes) / width
        paid = (plan.planned_time_ns - most.planned_time_ns) / height
        return saved - paid

    deepest = max(range(len(plans)), key=lambda i: depth(plans[i]))
    return curve[deepest] if depth(plans[deepest]) > 0 else None
