"""When a schedule does what: runs, waits and transfers on their lanes, and what is on the device.

The times are those of `simulate`, which gives the sums; here is what they are sums of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memplan.graph_capture.graph import Graph
from memplan.planner.schedule import Compute, Drop, Prefetch, Schedule, SwapOut, Wait
from memplan.planner.tiers import Lanes, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an op; `repeat` is 0 for the first, and counts the later ones."""

    step: int
    op: int
    repeat: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The compute lane waits for a transfer."""

    step: int
    tensor: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A tensor moves: `out` to its tier, or back in."""

    tensor: int
    tier: int
    out: bool
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A tensor takes device memory from step `first` to step `last`, both included."""

    tensor: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What happens on each lane, in order.

    Attributes:
        runs: The compute lane.
        stalls: Its waits that take time.
        transfers: The copy lanes.
        start_ns: (steps,) when each step starts.
        end_ns: When the last one ends.
    """

    runs: tuple[Run, ...]
    stalls: tuple[Stall, ...]
    transfers: tuple[Transfer, ...]
    start_ns: tuple[int, ...]
    end_ns: int


def history(graph: Graph, schedule: Schedule, tiers: Sequence[Tier] = ()) -> History:
    """Return what a valid schedule does when."""
    lanes = Lanes(tiers)
    times_run: Counter[int] = Counter()
    tier_of: dict[int, int] = {}
    ends_ns: dict[int, int] = {}
    runs: list[Run] = []
    stalls: list[Stall] = []
    transfers: list[Transfer] = []
    start_ns: list[int] = []
    now_ns = 0
    for i, step in enumerate(schedule):
        start_ns.append(now_ns)
        if isinstance(step, Compute):
            end_ns = now_ns + graph.ops[step.op].time_ns
            repeat = times_run[step.op]
            runs.append(Run(step=i, op=step.op, repeat=repeat, start_ns=now_ns, end_ns=end_ns))
            times_run[step.op] += 1
            now_ns = end_ns
        elif isinstance(step, (SwapOut, Prefetch)):
            t, out = step.tensor, isinstance(step, SwapOut)
            tier_of[t] = step.tier if isinstance(step, SwapOut) else tier_of[t]
            k, nbytes = tier_of[t], graph.tensors[t].nbytes
            took_ns = tiers[k].write_ns(nbytes) if out else tiers[k].read_ns(nbytes)
            end_ns = (lanes.write if out else lanes.read)(k, nbytes, now_ns)
            ends_ns[t] = end_ns
            transfers.append(
                Transfer(tensor=t, tier=k, out=out, start_ns=end_ns - took_ns, end_ns=end_ns)
            )
        elif isinstance(step, Wait):
            end_ns = max(now_ns, ends_ns.pop(step.tensor, now_ns))
            if end_ns > now_ns:
                stalls.append(Stall(step=i, tensor=step.tensor, start_ns=now_ns, end_ns=end_ns))
            now_ns = end_ns
    return History(
        runs=tuple(runs),
        stalls=tuple(stalls),
        transfers=tuple(transfers),
        start_ns=tuple(start_ns),
        end_ns=now_ns,
    )


def residence_spans(graph: Graph, schedule: Schedule) -> tuple[Span, ...]:
    """Return when each tensor is on the device, in the order in which the spans end."""
    since = {t: 0 for t, made in enumerate(graph.producer) if made is None}
    leaving: set[int] = set()
    spans: list[Span] = []
    for i, step in enumerate(schedule):
        if isinstance(step, Compute):
            for t in graph.ops[step.op].outputs:
                since.setdefault(t, i)
        elif isinstance(step, SwapOut):
            leaving.add(step.tensor)
        elif isinstance(step, Prefetch):
            since.setdefault(step.tensor, i)
        elif (isinstance(step, Drop) or step.tensor in leaving) and step.tensor in since:
            leaving.discard(step.tensor)
            spans.append(Span(tensor=step.tensor, first=since.pop(step.tensor), last=i))
    end = len(schedule) - 1
    spans += [Span(tensor=t, first=first, last=end) for t, first in since.items()]
    return tuple(spans)
