"""A plan as one HTML page that needs no network: memory, lanes, decisions by module, code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from memplan.graph_capture.graph import Graph, Phase
from memplan.planner.advice import KIND_NAMES
from memplan.planner.explain import Explanation
from memplan.planner.grouping import grouped
from memplan.planner.history import History, Transfer, history, residence_spans
from memplan.planner.plan import Plan
from memplan.planner.schedule import Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.tiers import Tier
from memplan.units import format_bytes, format_ns

REPORT_FILE = "report.html"

_WIDTH = 10_000
"""Of the drawings, in units of their own; the page stretches them."""
_MOST_CODE_BYTES = 1_500_000
_TICKS = 5
_DECISIONS = ("memplan.", "_recompute_")


def report(plan: Plan, code: Mapping[str, str] | None = None) -> str:
    """Return the page.

    Args:
        plan: The plan.
        code: Generated code by file name.
    """
    import jinja2

    template = resources.files(__package__).joinpath("report.html.jinja").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"bytes": format_bytes, "ns": format_ns}
    return environment.from_string(template).render(
        **_figures(plan), **_drawings(plan), code=[_code(*item) for item in (code or {}).items()]
    )


@dataclass(frozen=True, kw_only=True)
class _Course:
    """One way to run the step: with the plan, or without."""

    graph: Graph
    schedule: Schedule
    tiers: tuple[Tier, ...]
    told: History
    live_bytes: tuple[int, ...]

    @classmethod
    def of(cls, graph: Graph, schedule: Schedule, tiers: tuple[Tier, ...]) -> _Course:
        told = history(graph, schedule, tiers)
        return cls(
            graph=graph,
            schedule=schedule,
            tiers=tiers,
            told=told,
            live_bytes=simulate(graph, schedule, tiers).live_bytes,
        )

    def points(self) -> list[tuple[int, int]]:
        """Return the corners of the curve of memory: time and bytes."""
        corners = [(0, self.graph.given_bytes)]
        ends_ns = (*self.told.start_ns[1:], self.told.end_ns)
        steps = zip(self.told.start_ns, ends_ns, self.live_bytes, strict=True)
        for start_ns, end_ns, nbytes in steps:
            if end_ns > start_ns:
                corners += [(start_ns, nbytes), (end_ns, nbytes)]
        return corners

    def data(self) -> dict[str, Any]:
        """Return what the page needs to tell the contents at any time."""
        spans = residence_spans(self.graph, self.schedule)
        return {
            "start": [run.start_ns for run in self.told.runs],
            "step": [run.step for run in self.told.runs],
            "op": [run.op for run in self.told.runs],
            "repeat": [run.repeat for run in self.told.runs],
            "live": [self.live_bytes[run.step] for run in self.told.runs],
            "spans": [[s.tensor, s.first, s.last] for s in spans],
        }


def _drawings(plan: Plan) -> dict[str, Any]:
    graph = plan.graph
    planned = _Course.of(graph, plan.schedule, plan.tiers)
    unplanned = _Course.of(graph, schedule_of(graph, range(len(graph.ops))), ())
    end_ns = max(planned.told.end_ns, unplanned.told.end_ns, 1)
    top_bytes = max(plan.unplanned_peak_bytes, plan.budget_bytes, plan.planned_peak_bytes, 1)
    top_bytes = top_bytes * 21 // 20
    data = {
        "end": end_ns,
        "kinds": KIND_NAMES,
        "planned": planned.data(),
        "unplanned": unplanned.data(),
        "tensors": [[t.name, t.nbytes, t.kind.value] for t in graph.tensors],
        "producer": [-1 if made is None else made for made in graph.producer],
        "ops": [[op.name, op.phase.value, op.module, op.workspace_bytes] for op in graph.ops],
    }
    # Inside a script element only "</" and "<!--" could end it early.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return {
        "curves": [
            ("unplanned", _curve(unplanned.points(), end_ns, top_bytes)),
            ("planned", _curve(planned.points(), end_ns, top_bytes)),
        ],
        "width": _WIDTH,
        "budget_top": f"{100 - 100 * plan.budget_bytes / top_bytes:.3f}",
        "bytes_ticks": [
            (f"{100 - 100 * tick / top_bytes:.3f}", _round(format_bytes(tick)))
            for tick in _ticks(top_bytes)
        ],
        "time_ticks": [
            (f"{100 * tick / end_ns:.3f}", _round(format_ns(tick))) for tick in _ticks(end_ns)
        ],
        "lanes": _lanes(planned, end_ns),
        "data": text,
    }


def _ticks(end: int) -> list[int]:
    """Return a few round numbers from 0 on that do not pass `end`."""
    rough = max(1, end // _TICKS)
    size = 10 ** (len(str(rough)) - 1)
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= rough)
    return list(range(0, end + 1, step))


def _round(figure: str) -> str:
    """Return a figure of an axis without zeros that say nothing."""
    number, unit = figure.split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def _curve(points: Sequence[tuple[int, int]], end_ns: int, top_bytes: int) -> str:
    """Return the outline of an area, as SVG writes it, in a box of `_WIDTH` squared."""
    corners = [
        (round(_WIDTH * time_ns / end_ns), round(_WIDTH * (1 - nbytes / top_bytes)))
        for time_ns, nbytes in points
    ]
    thinned = [c for i, c in enumerate(corners) if i == 0 or c != corners[i - 1]]
    path = " ".join(f"{x},{y}" for x, y in thinned)
    return f"M{path}"


def _lanes(course: _Course, end_ns: int) -> list[dict[str, Any]]:
    """Return name and blocks of each lane; a block is its class, its start and its length."""
    graph, told = course.graph, course.told
    kinds = [
        (run.start_ns, run.end_ns, "again" if run.repeat else graph.ops[run.op].phase.value)
        for run in told.runs
    ]
    kinds += [(stall.start_ns, stall.end_ns, "stall") for stall in told.stalls]
    lanes = [{"name": "compute", "blocks": _blocks(sorted(kinds), end_ns)}]
    for k, tier in enumerate(course.tiers):
        for out, name in ((True, f"to {tier.name}"), (False, f"from {tier.name}")):
            moves = [_move(x) for x in told.transfers if x.tier == k and x.out is out]
            lanes.append({"name": name, "blocks": _blocks(moves, end_ns)})
    return lanes


def _move(transfer: Transfer) -> tuple[int, int, str]:
    return transfer.start_ns, transfer.end_ns, "out" if transfer.out else "in"


def _blocks(pieces: Sequence[tuple[int, int, str]], end_ns: int) -> list[tuple[str, int, int]]:
    """Join pieces of one class that touch, and scale them."""
    joined: list[list[Any]] = []
    for start_ns, stop_ns, kind in pieces:
        if stop_ns == start_ns:
            continue
        if joined and joined[-1][2] == kind and joined[-1][1] == start_ns:
            joined[-1][1] = stop_ns
        else:
            joined.append([start_ns, stop_ns, kind])
    return [
        (kind, round(_WIDTH * a / end_ns), max(1, round(_WIDTH * (b - a) / end_ns)))
        for a, b, kind in joined
    ]


def _figures(plan: Plan) -> dict[str, Any]:
    story = Explanation(plan)
    graph = plan.graph
    forward = sum(op.phase is Phase.FORWARD for op in graph.ops)
    made_with = {
        "solver": plan.solver,
        "status": plan.status.value,
        "solving took": f"{plan.solve_seconds:.1f} s",
        "extra time": f"{plan.overhead:+.2%}",
        "proven bound": f"{plan.proven_bound:+.2%} for every schedule of the captured order",
        "gap": f"{plan.gap:.2%} of the step above the proven bound",
        "no plan below": f"{format_bytes(plan.limit_bytes)}, proven",
        "graph": f"{len(graph.ops):,} ops ({forward:,} forward), {len(graph.tensors):,} tensors",
    }
    if plan.model_bound is not None:
        made_with["model bound"] = f"{plan.model_bound:+.2%} in the solver's own model"
    for tier in plan.tiers:
        speeds = f"{format_bytes(tier.write_bytes_per_s)}/s out, "
        speeds += f"{format_bytes(tier.read_bytes_per_s)}/s in"
        made_with[f"tier {tier.name}"] = f"{speeds}, holds {format_bytes(tier.capacity_bytes)}"
    return {
        "plan": plan,
        "story": story,
        "kind_names": KIND_NAMES,
        "modules_at_peak": grouped(plan.modules_at_peak),
        "has_tiers": bool(plan.tiers),
        "modules": story.modules(),
        "made_with": made_with | dict(sorted(plan.provenance.items())),
    }


def _code(name: str, text: str) -> dict[str, Any]:
    shown = text[:_MOST_CODE_BYTES]
    lines = shown.splitlines()
    return {
        "name": name,
        "lines": [(any(word in line for word in _DECISIONS), line) for line in lines],
        "left_out": len(text) - len(shown),
    }
