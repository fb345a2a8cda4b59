"""Where the plan of a captured step comes from, where it need not be made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from memplan.graph_capture.joint import JointGraph
from memplan.planner.plan import Plan

PlanFor: TypeAlias = Callable[[JointGraph], Plan]


@dataclass(frozen=True, slots=True)
class TheOnePlan:
    """Answers every step with one plan; that it is not the step's own is found out on use."""

    plan: Plan

    def __call__(self, joint: JointGraph) -> Plan:
        """Return the plan."""
        return self.plan


@dataclass(frozen=True, slots=True)
class KnownPlans:
    """Answers a step that was planned before with its plan, and asks for that of any other.

    Attributes:
        plans: By the digest of the joint graph.
        otherwise: Makes the plan of a step that is not among them.
    """

    plans: Mapping[str, Plan]
    otherwise: PlanFor

    def __call__(self, joint: JointGraph) -> Plan:
        """Return the plan of `joint`."""
        return self.plans.get(joint.digest) or self.otherwise(joint)


def known_before(plans: Mapping[str, Plan], otherwise: PlanFor) -> KnownPlans:
    """Return `otherwise` for steps that are not in `plans`, nor in those it knows already."""
    if isinstance(otherwise, KnownPlans):
        return KnownPlans({**otherwise.plans, **plans}, otherwise.otherwise)
    return KnownPlans(dict(plans), otherwise)
