"""memplan: plan and compile PyTorch training steps that fit a memory budget.

Everything public is listed in `__all__`; importing it costs nothing until a name is used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memplan.api import capture as capture
    from memplan.api import compile as compile
    from memplan.api import load as load
    from memplan.api import minimum_budget as minimum_budget
    from memplan.api import plan as plan
    from memplan.api import solve as solve
    from memplan.codegen.optimized_module import OptimizedModule as OptimizedModule
    from memplan.errors import InfeasibleBudget as InfeasibleBudget
    from memplan.errors import MemplanError as MemplanError
    from memplan.estimates import Estimate as Estimate
    from memplan.estimates import estimate as estimate
    from memplan.graph_capture.graph import Graph as Graph
    from memplan.planner.compare import compare as compare
    from memplan.planner.plan import Plan as Plan

_HOME = {
    "Estimate": "memplan.estimates",
    "Graph": "memplan.graph_capture.graph",
    "InfeasibleBudget": "memplan.errors",
    "MemplanError": "memplan.errors",
    "OptimizedModule": "memplan.codegen.optimized_module",
    "Plan": "memplan.planner.plan",
    "capture": "memplan.api",
    "compare": "memplan.planner.compare",
    "compile": "memplan.api",
    "estimate": "memplan.estimates",
    "load": "memplan.api",
    "minimum_budget": "memplan.api",
    "plan": "memplan.api",
    "solve": "memplan.api",
}

__all__ = sorted(_HOME)

# A checkout whose links git could not make (Windows, some archives): look beside us instead.
if not (Path(__file__).parent / "planner").is_dir():  # pragma: no cover
    __path__.append(str(Path(__file__).parent.parent))


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'memplan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
