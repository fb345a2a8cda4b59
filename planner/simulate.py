"""Replays a schedule and finds its memory and time at every step, exact to the byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memplan.graph_capture.graph import Graph
from memplan.planner.schedule import Compute, Drop, Prefetch, Schedule, Step, SwapOut, Wait
from memplan.planner.tiers import Lanes, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What a schedule does when it runs.

    Attributes:
        peak_bytes: The largest of `live_bytes`, and of what is there before the first step.
        time_ns: Sum of the times of all `Compute` steps, and of all stalls.
        live_bytes: (steps,) device bytes in use while each step runs: resident tensors, outputs
            being written (a second instance included) and workspace.
        peak_step: Index of the first step at which the peak is reached; -1 for an empty one.
        stall_ns: What of `time_ns` is waiting for transfers.
        swapped_bytes: Bytes written to tiers.
        buffer_bytes: What of `live_bytes` is buffers of the transfers, at every step.
    """

    peak_bytes: int
    time_ns: int
    live_bytes: tuple[int, ...]
    peak_step: int
    stall_ns: int = 0
    swapped_bytes: int = 0
    buffer_bytes: int = 0

    def __repr__(self) -> str:
        return (
            f"<Timeline: {len(self.live_bytes):,} steps, peak {self.peak_bytes:,} bytes at step "
            f"{self.peak_step}, {self.time_ns:,} ns>"
        )


def simulate(graph: Graph, schedule: Schedule, tiers: Sequence[Tier] = ()) -> Timeline:
    """Replay `schedule` on a device of unlimited memory.

    The schedule is believed to be valid; `verify` finds out whether it is. Transfers start when
    they are asked for and their lane is free, and overlap with compute until a `Wait`.
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
        elif isinstance(step, Drop):
            live_bytes.append(resident_bytes)
            if step.tensor in resident:
                resident.remove(step.tensor)
                resident_bytes -= sizes[step.tensor]
        else:
            return _simulate_transfers(graph, schedule, tiers)
    peak_bytes = max(live_bytes, default=graph.given_bytes)
    return Timeline(
        peak_bytes=peak_bytes,
        time_ns=time_ns,
        live_bytes=tuple(live_bytes),
        peak_step=live_bytes.index(peak_bytes) if live_bytes else -1,
    )


def _simulate_transfers(graph: Graph, schedule: Schedule, tiers: Sequence[Tier]) -> Timeline:
    """Replay a schedule that moves tensors; what `simulate` does with the others, and lanes."""
    sizes = [t.nbytes for t in graph.tensors]
    used = {step.tier for step in schedule if isinstance(step, SwapOut)}
    buffer_bytes = sum(tiers[tier].buffer_bytes for tier in used)
    state, lanes = _Residence(graph), Lanes(tiers)
    tier_of: dict[int, int] = {}
    ends_ns: dict[int, int] = {}
    """When the transfer of a tensor ends, for those on their way."""
    live_bytes: list[int] = []
    now_ns = stall_ns = swapped_bytes = 0
    for step in schedule:
        running_bytes = 0
        if isinstance(step, Compute):
            op = graph.ops[step.op]
            running_bytes = sum(sizes[t] for t in op.outputs) + op.workspace_bytes
            now_ns += op.time_ns
        elif isinstance(step, SwapOut):
            tier_of[step.tensor] = step.tier
            ends_ns[step.tensor] = lanes.write(step.tier, sizes[step.tensor], now_ns)
            swapped_bytes += sizes[step.tensor]
        elif isinstance(step, Prefetch):
            running_bytes = sizes[step.tensor]
            ends_ns[step.tensor] = lanes.read(tier_of[step.tensor], running_bytes, now_ns)
        elif isinstance(step, Wait):
            stalled_ns = max(0, ends_ns.pop(step.tensor, now_ns) - now_ns)
            now_ns, stall_ns = now_ns + stalled_ns, stall_ns + stalled_ns
        live_bytes.append(buffer_bytes + state.nbytes + running_bytes)
        state.apply(step)
    peak_bytes = max(live_bytes)
    return Timeline(
        peak_bytes=peak_bytes,
        time_ns=now_ns,
        live_bytes=tuple(live_bytes),
        peak_step=live_bytes.index(peak_bytes),
        stall_ns=stall_ns,
        swapped_bytes=swapped_bytes,
        buffer_bytes=buffer_bytes,
    )


class _Residence:
    """Which tensors take device memory after the steps that were applied."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = {t for t, made in enumerate(graph.producer) if made is None}
        self.nbytes = graph.given_bytes
        self.leaving: set[int] = set()

    def apply(self, step: Step) -> None:
        """Take one step."""
        if isinstance(step, Compute):
            for t in self.graph.ops[step.op].outputs:
                self._add(t)
        elif isinstance(step, SwapOut):
            self.leaving.add(step.tensor)
        elif isinstance(step, Prefetch):
            self._add(step.tensor)
        elif isinstance(step, Drop) or step.tensor in self.leaving:
            self.leaving.discard(step.tensor)
            if step.tensor in self.tensors:
                self.tensors.remove(step.tensor)
                self.nbytes -= self.graph.tensors[step.tensor].nbytes

    def _add(self, t: int) -> None:
        if t not in self.tensors:
            self.tensors.add(t)
            self.nbytes += self.graph.tensors[t].nbytes


def resident_after(graph: Graph, steps: Sequence[Step]) -> tuple[int, ...]:
    """Return the tensors that take device memory after `steps`, those on their way included."""
    state = _Residence(graph)
    for step in steps:
        state.apply(step)
    return tuple(sorted(state.tensors))


def resident_at(graph: Graph, schedule: Schedule, step: int) -> tuple[int, ...]:
    """Return the tensors on the device while `schedule[step]` runs, its outputs included."""
    current = schedule[step]
    resident = set(resident_after(graph, schedule[:step]))
    if isinstance(current, Compute):
        resident.update(graph.ops[current.op].outputs)
    elif isinstance(current, Prefetch):
        resident.add(current.tensor)
    return tuple(sorted(resident))
