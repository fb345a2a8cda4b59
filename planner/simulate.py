"""Replays a schedule and finds its memory and time at every step, exact to the byte."""

from __future__ import annotations

from dataclasses import dataclass

from memplan.graph_capture.graph import Graph
from memplan.planner.schedule import Compute, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What a schedule does when it runs.

    Attributes:
        peak_bytes: The largest of `live_bytes`, and of what is there before the first step.
        time_ns: Sum of the times of all `Compute` steps.
        live_bytes: (steps,) device bytes in use while each step runs: resident tensors, outputs
            being written (a second instance included) and workspace.
        peak_step: Index of the first step at which the peak is reached; -1 for an empty one.
    """

    peak_bytes: int
    time_ns: int
    live_bytes: tuple[int, ...]
    peak_step: int

    def __repr__(self) -> str:
        return (
            f"<Timeline: {len(self.live_bytes):,} steps, peak {self.peak_bytes:,} bytes at step "
            f"{self.peak_step}, {self.time_ns:,} ns>"
        )


def simulate(graph: Graph, schedule: Schedule) -> Timeline:
    """Replay `schedule` on a device of unlimited memory.

    The schedule is believed to be valid; `verify` finds out whether it is.
    """
    sizes = [t.nbytes for t in graph.tensors]
    resident = {t for t, made in enumerate(graph.producer) if made is None}
    resident_bytes = graph.given_bytes
    live_bytes: list[int] = []
    time_ns = 0
    for step in schedule:
        if isinstance(step, Compute):
            op = graph.ops[step.op]
            written_bytes = sum(sizes[t] for t in op.outputs)
            live_bytes.append(resident_bytes + written_bytes + op.workspace_bytes)
            time_ns += op.time_ns
            resident_bytes += sum(sizes[t] for t in op.outputs if t not in resident)
            resident.update(op.outputs)
        else:
            live_bytes.append(resident_bytes)
            if step.tensor in resident:
                resident.remove(step.tensor)
                resident_bytes -= sizes[step.tensor]
    peak_bytes = max(live_bytes, default=graph.given_bytes)
    return Timeline(
        peak_bytes=peak_bytes,
        time_ns=time_ns,
        live_bytes=tuple(live_bytes),
        peak_step=live_bytes.index(peak_bytes) if live_bytes else -1,
    )


def resident_at(graph: Graph, schedule: Schedule, step: int) -> tuple[int, ...]:
    """Return the tensors on the device while `schedule[step]` runs, its outputs included."""
    resident = {t for t, made in enumerate(graph.producer) if made is None}
    for done in schedule[:step]:
        if isinstance(done, Compute):
            resident.update(graph.ops[done.op].outputs)
        else:
            resident.discard(done.tensor)
    current = schedule[step]
    if isinstance(current, Compute):
        resident.update(graph.ops[current.op].outputs)
    return tuple(sorted(resident))
