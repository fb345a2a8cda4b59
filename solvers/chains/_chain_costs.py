"""What the stages of a chain take: time and bytes, as the chain programs need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from memplan.planner.schedule import Compute, schedule_of
from memplan.planner.simulate import simulate
from memplan.solvers.chains._chain import Chain, ops_between


@dataclass(frozen=True, kw_only=True)
class ChainCosts:
    """For each stage, what its runs take. Bytes are beside the stage's input where not said.

    Attributes:
        forward_ns: Running it again for its output.
        both_ns: Running it again for its output and all that its window reads.
        saved_ns: Running it again for what its window reads, without its output.
        output_bytes: Of its output.
        saved_bytes: Of its output and what its window reads.
        first_bytes: Peak of its first run if only its output stays, everything included.
        first_beside_bytes: The same with the stage's input counted as long as it is read.
        first_all_bytes: Peak of its first run if what its window reads stays as well.
        again_bytes: As the three above when it runs again, without `fixed_bytes`.
        again_beside_bytes: See `again_bytes`.
        again_all_bytes: See `again_bytes`.
        window_bytes: Peak of its window, everything included but its input.
        fixed_bytes: What is there when its window begins, apart from all movable tensors.
    """

    forward_ns: tuple[int, ...]
    both_ns: tuple[int, ...]
    saved_ns: tuple[int, ...]
    output_bytes: tuple[int, ...]
    saved_bytes: tuple[int, ...]
    first_bytes: tuple[int, ...]
    first_beside_bytes: tuple[int, ...]
    first_all_bytes: tuple[int, ...]
    again_bytes: tuple[int, ...]
    again_beside_bytes: tuple[int, ...]
    again_all_bytes: tuple[int, ...]
    window_bytes: tuple[int, ...]
    fixed_bytes: tuple[int, ...]

    def uniform(self) -> ChainCosts:
        """Return equal stages: what stays is as large as the largest, and takes the mean time."""
        count = len(self.forward_ns)
        mean_ns = (max(1, sum(self.forward_ns) // count),) * count
        return replace(
            self,
            forward_ns=mean_ns,
            both_ns=mean_ns,
            saved_ns=tuple(mean_ns[0] if own_ns else 0 for own_ns in self.saved_ns),
            output_bytes=(max(self.output_bytes),) * count,
            saved_bytes=(max(self.saved_bytes),) * count,
        )


def chain_costs(chain: Chain) -> ChainCosts:
    """Measure every stage by replaying its ops alone."""
    graph = chain.graph
    base = _Base(chain)
    rows = [_stage_costs(chain, base, number) for number in range(len(chain))]
    columns = {name: tuple(row[name] for row in rows) for name in rows[0]}
    times_ns = [op.time_ns for op in graph.ops]

    def time_of(wanted: Iterable[Iterable[int]]) -> tuple[int, ...]:
        return tuple(
            sum(times_ns[i] for i in ops_between(chain, _start(chain, number), tensors))
            for number, tensors in enumerate(wanted)
        )

    return ChainCosts(
        forward_ns=time_of(_output(chain, s) for s in range(len(chain))),
        both_ns=time_of(chain.saved[s] | _output(chain, s) for s in range(len(chain))),
        saved_ns=time_of(chain.saved),
        output_bytes=tuple(chain.bytes_of(_output(chain, s)) for s in range(len(chain))),
        saved_bytes=tuple(
            chain.bytes_of(chain.saved[s] | _output(chain, s)) for s in range(len(chain))
        ),
        **columns,
    )


def _output(chain: Chain, stage: int) -> frozenset[int]:
    tensor = chain.boundary[stage]
    return frozenset() if tensor is None else frozenset((tensor,))


def _start(chain: Chain, stage: int) -> frozenset[int]:
    return _output(chain, stage - 1) if stage else frozenset()


class _Base:
    """The bytes of everything that is not movable when nothing runs twice."""

    def __init__(self, chain: Chain) -> None:
        graph = chain.graph
        plain = schedule_of(graph, range(len(graph.ops)))
        live = [
            nbytes
            for nbytes, step in zip(simulate(graph, plain).live_bytes, plain, strict=True)
            if isinstance(step, Compute)
        ]
        movable = _movable_bytes(chain, range(len(graph.ops)), chain.movable)
        self.live_bytes = [a - b for a, b in zip(live, movable, strict=True)]
        """(ops,) while each op runs, its workspace and outputs included."""
        written = [
            op.workspace_bytes
            + sum(graph.tensors[t].nbytes for t in op.outputs if not chain.movable[t])
            for op in graph.ops
        ]
        self.before_bytes = [a - b for a, b in zip(self.live_bytes, written, strict=True)]
        self.written_bytes = written


def _movable_bytes(
    chain: Chain, ops: Sequence[int], movable: Sequence[bool], keep: Iterable[int] = ()
) -> list[int]:
    """Return the bytes of `movable` tensors while each of `ops` runs, once and in this order.

    A tensor comes with its producer, or is there from the start if that is none of `ops`; it
    leaves after the last of `ops` that reads it, unless it is one of `keep`.
    """
    graph, sizes = chain.graph, [t.nbytes for t in chain.graph.tensors]
    last = {t: j for j, i in enumerate(ops) for t in graph.ops[i].inputs if movable[t]}
    made = {t for i in ops for t in graph.ops[i].outputs}
    stays = set(keep)
    bytes_now = sum(sizes[t] for t in last if t not in made)
    live = []
    for j, i in enumerate(ops):
        outputs = [t for t in graph.ops[i].outputs if movable[t]]
        bytes_now += sum(sizes[t] for t in outputs)
        live.append(bytes_now)
        gone = [t for t in graph.ops[i].inputs if last.get(t) == j and t not in stays]
        gone += [t for t in outputs if t not in last and t not in stays]
        bytes_now -= sum(sizes[t] for t in gone)
    return live


def _stage_costs(chain: Chain, base: _Base, stage: int) -> dict[str, int]:
    output = _output(chain, stage)
    everything = chain.saved[stage] | output
    start = chain.input_of(stage)
    own = [s == stage for s in chain.stage]
    beside = [o or t == start for t, o in enumerate(own)]
    first, window = chain.forward[stage], chain.backward[stage]

    def peak(
        ops: Sequence[int],
        base_bytes: Sequence[int],
        movable: Sequence[bool],
        keep: frozenset[int],
    ) -> int:
        live = _movable_bytes(chain, ops, movable, keep)
        return max((a + base_bytes[i] for a, i in zip(live, ops, strict=True)), default=0)

    again = ops_between(chain, _start(chain, stage), output)
    written = base.written_bytes
    start_bytes = 0 if start is None else chain.graph.tensors[start].nbytes
    return {
        "first_bytes": peak(first, base.live_bytes, own, output),
        "first_beside_bytes": peak(first, base.live_bytes, beside, output),
        "first_all_bytes": peak(first, base.live_bytes, own, everything),
        "again_bytes": peak(again, written, own, output),
        "again_beside_bytes": peak(again, written, beside, output),
        "again_all_bytes": peak(
            ops_between(chain, _start(chain, stage), everything), written, own, everything
        ),
        "window_bytes": peak(window, base.live_bytes, beside, frozenset()) - start_bytes,
        "fixed_bytes": base.before_bytes[_begin(chain, stage)],
    }


def _begin(chain: Chain, stage: int) -> int:
    """Return the first op of the window of `stage`, or of the next one that has any."""
    windows = (chain.backward[s] for s in range(stage, -1, -1))
    return next((ops[0] for ops in windows if ops), len(chain.graph.ops) - 1)
