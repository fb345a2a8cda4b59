"""A plan as a trace that Chrome (about:tracing) and Perfetto show.

Source: "Trace Event Format", Google, 2016: complete events (`X`), counters (`C`), names (`M`);
    times are microseconds.
"""

from __future__ import annotations

import json
from typing import Any

from memplan.planner.history import history
from memplan.planner.plan import Plan

_COMPUTE = 0
_BY_NS = 1000


def trace(plan: Plan) -> str:
    """Return the JSON text of the trace: lanes of the plan, and its memory as a counter."""
    told = history(plan.graph, plan.schedule, plan.tiers)
    lanes = ["compute"]
    lanes += [f"{way} {tier.name}" for tier in plan.tiers for way in ("to", "from")]
    events = [_name("process_name", plan.graph.name or "step")]
    events += [_name("thread_name", name, thread) for thread, name in enumerate(lanes)]
    for run in told.runs:
        op = plan.graph.ops[run.op]
        event = _event(op.name, _COMPUTE, run.start_ns, run.end_ns)
        event["cat"] = "recompute" if run.repeat else op.phase.value
        event["args"] = {"module": op.module, "target": op.target, "run": run.repeat + 1}
        events.append(event)
        used = {"bytes": plan.timeline.live_bytes[run.step]}
        events.append({"ph": "C", "name": "memory", "pid": 0, "ts": event["ts"], "args": used})
    for stall in told.stalls:
        name = f"wait for {plan.graph.tensors[stall.tensor].name}"
        event = _event(name, _COMPUTE, stall.start_ns, stall.end_ns)
        events.append(event | {"cat": "stall", "args": {}})
    for move in told.transfers:
        tensor = plan.graph.tensors[move.tensor]
        thread = 1 + 2 * move.tier + (not move.out)
        event = _event(tensor.name, thread, move.start_ns, move.end_ns)
        kind = "swap_out" if move.out else "prefetch"
        events.append(event | {"cat": kind, "args": {"bytes": tensor.nbytes}})
    budget = {"budget_bytes": plan.budget_bytes, "peak_bytes": plan.planned_peak_bytes}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": budget})


def _event(name: str, thread: int, start_ns: int, end_ns: int) -> dict[str, Any]:
    times = {"ts": start_ns / _BY_NS, "dur": (end_ns - start_ns) / _BY_NS}
    return {"ph": "X", "name": name, "pid": 0, "tid": thread, **times}


def _name(what: str, name: str, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": 0, "tid": thread, "args": {"name": name}}
