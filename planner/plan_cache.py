"""Plans on disk, so that the same question is solved once.

One file a plan, named by a hash of all that the plan depends on. A plan that is read is checked as
any plan file is, and must be for the very graph that was asked about. Files are replaced whole, so
that processes share the folder without a lock.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from memplan.errors import PlanMismatch, UsageError
from memplan.graph_capture.cache_folder import cache_folder
from memplan.graph_capture.graph import Graph
from memplan.planner.plan import SCHEMA, Plan
from memplan.planner.problem import Limits
from memplan.planner.solver import solver_entry_points
from memplan.planner.tiers import Tier

_LOG = logging.getLogger(__name__)

_OFF = ("0", "off", "no", "false")
_LIBRARIES = ("memplan", "highspy", "ortools", "pulp")
MOST_BYTES = 2**30
"""Beyond this, plans that were not used for longest are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheContent:
    """What lies in the folder."""

    folder: Path
    plans: int
    plan_bytes: int
    cost_files: int
    cost_bytes: int


class PlanCache:
    """The plans in one folder.

    A plan that cannot be read or does not hold is deleted, a folder that cannot be written to is
    left; both with a warning, as a plan can always be made again.

    Args:
        folder: Where the files are; made when first needed. None for `plans` in `cache_folder()`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "plans"

    def plan(self, graph: Graph, question: Mapping[str, Any], make: Callable[[], Plan]) -> Plan:
        """Return the plan of `graph` that is kept for the question, or make it and keep it.

        Args:
            graph: The graph with its costs.
            question: All else that decides the plan, see `question_of`.
            make: Solves it.
        """
        if not is_on():
            return make()
        path = self.folder / f"{_key(graph, question)}.json"
        found = self._read(path, graph)
        if found is not None:
            note = f"Taken from the plan cache; it was solved in {found.solve_seconds:.1f} s."
            return replace(found, notes=(*found.notes, note))
        made = make()
        self._write(path, made)
        return made

    def _read(self, path: Path, graph: Graph) -> Plan | None:
        if not path.exists():
            return None
        try:
            plan = Plan.load(path)
            if plan.graph != graph:
                raise PlanMismatch(f"{path}: the plan is for another graph")
            os.utime(path)
        except PlanMismatch as error:
            _LOG.warning("dropping a damaged plan from the cache (%s)", error)
            _delete(path)
        except (UsageError, OSError) as error:
            _LOG.warning("cannot read a plan from the cache: %s", error)
        else:
            return plan
        return None

    def _write(self, path: Path, plan: Plan) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            plan.save(path)
            _delete_oldest(self.folder)
        except (UsageError, OSError) as error:
            _LOG.warning("cannot keep a plan in the cache: %s", error)


def is_on() -> bool:
    """Whether plans are kept: unless `$MEMPLAN_PLAN_CACHE` is `off`."""
    return os.environ.get("MEMPLAN_PLAN_CACHE", "on").lower() not in _OFF


def question_of(
    budget: str | int, solver: str, limits: Limits, tiers: Sequence[Tier]
) -> dict[str, Any]:
    """Return what decides a plan beside its graph, versions of all that solves it included."""
    point = solver_entry_points().get(solver)
    packages = {*_LIBRARIES, *([point.dist.name] if point and point.dist else [])}
    return {
        "budget": str(budget).strip().lower(),
        "solver": [solver, point.value if point else ""],
        "limits": [limits.time_s, limits.seed, limits.threads],
        "tiers": [asdict(tier) for tier in tiers],
        "versions": {name: _version(name) for name in sorted(packages)},
    }


def cache_content(folder: Path | None = None) -> CacheContent:
    """Return how much is kept, plans and measured costs."""
    there = folder or cache_folder()
    plans = _sizes(there, "plans/*.json")
    costs = _sizes(there, "op-costs-*.jsonl")
    return CacheContent(
        folder=there,
        plans=len(plans),
        plan_bytes=sum(plans),
        cost_files=len(costs),
        cost_bytes=sum(costs),
    )


def clear_cache(folder: Path | None = None) -> CacheContent:
    """Delete all that is kept and return what it was.

    Raises:
        UsageError: A file cannot be deleted.
    """
    there = folder or cache_folder()
    content = cache_content(there)
    for pattern in ("plans/*.json", "op-costs-*.jsonl"):
        for path in there.glob(pattern):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise UsageError(f"cannot delete {path}: {error.strerror}") from None
    return content


def _key(graph: Graph, question: Mapping[str, Any]) -> str:
    asked = json.dumps({"schema": SCHEMA, **question}, sort_keys=True, default=str)
    return hashlib.sha256(f"{asked}\n{graph.to_json()}".encode()).hexdigest()[:40]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _sizes(folder: Path, pattern: str) -> list[int]:
    sizes = []
    for path in folder.glob(pattern):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue  # another process deleted it meanwhile
    return sizes


def _delete_oldest(folder: Path) -> None:
    used = []
    for path in folder.glob("*.json"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # another process deleted it meanwhile
        used.append((status.st_mtime, status.st_size, path))
    left_bytes = sum(size for _, size, _ in used)
    for _, size, path in sorted(used):
        if left_bytes <= MOST_BYTES:
            return
        _delete(path)
        left_bytes -= size


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _LOG.warning("cannot delete %s: %s", path, error)
