"""A sequence of ops in numbered slots, most of them empty, with the bytes in use at each.

An op may stand in several slots; each of its outputs then has an instance from there to the last
reader before the next one. Putting an op in a slot or taking it out changes only the instances
of what it makes and reads.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy

from memplan.graph_capture.graph import Graph, Phase

EMPTY = -1


class Slots:
    """The captured order, spread evenly.

    Attributes:
        graph: The step.
        ops: For each slot its op, or `EMPTY`.
        positions: For each op the slots in which it stands, in order.
        live: (slots,) bytes in use.
        time_ns: Of all ops in slots.
    """

    def __init__(self, graph: Graph, slots_per_op: int) -> None:
        self.graph, count = graph, len(graph.ops)
        self.size = slots_per_op * count
        self.ops = [EMPTY] * self.size
        self.positions: list[list[int]] = [[] for _ in graph.ops]
        self.readers: list[list[int]] = [[] for _ in graph.tensors]
        self.live = numpy.full(self.size, graph.given_bytes, dtype=numpy.int64)
        self.time_ns = 0
        self.backward_slot = slots_per_op * graph.boundary
        """First runs of forward ops stand before it, all others from it on."""
        self.sizes = [t.nbytes for t in graph.tensors]
        self.source = [-1 if made is None else made for made in graph.producer]
        freeable = [not t.pinned and t.nbytes > 0 for t in graph.tensors]
        self.outputs = [tuple(t for t in op.outputs if freeable[t]) for op in graph.ops]
        self.inputs = [tuple(t for t in op.inputs if self.source[t] >= 0) for op in graph.ops]
        self.touched = [
            tuple(t for t in (*outputs, *inputs) if freeable[t])
            for outputs, inputs in zip(self.outputs, self.inputs, strict=True)
        ]
        self.pinned_bytes = [
            sum(self.sizes[t] for t in op.outputs if graph.tensors[t].pinned) for op in graph.ops
        ]
        self.fixed = [
            op.in_order or self.pinned_bytes[i] > 0 or not op.recomputable
            for i, op in enumerate(graph.ops)
        ]
        """Ops whose first run keeps its slot."""
        for i in range(count):
            self.live[slots_per_op * i :] += self.pinned_bytes[i]
            # `put` counts them as for a second run.
            self.live[slots_per_op * i] -= self.pinned_bytes[i]
            self.put(i, slots_per_op * i)

    def sequence(self) -> tuple[int, ...]:
        """Return the ops in the order of their slots."""
        return tuple(op for op in self.ops if op != EMPTY)

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use in any slot."""
        return int(self.live.max())

    def may_put(self, op: int, slot: int) -> bool:
        """Return whether all that `op` reads is made before `slot`, which is empty."""
        if self.ops[slot] != EMPTY:
            return False
        return all(self.positions[self.source[t]][0] < slot for t in self.inputs[op])

    def may_take(self, slot: int) -> bool:
        """Return whether the op in `slot` also stands elsewhere, before all its readers."""
        op = self.ops[slot]
        if op == EMPTY or len(self.positions[op]) < 2:
            return False
        first, second = self.positions[op][:2]
        if slot != first:
            return True
        if self.fixed[op] or not self._in_phase(op, second):
            return False
        return all(
            not self.readers[t] or self.readers[t][0] > second for t in self.graph.ops[op].outputs
        )

    def may_move(self, slot: int, to: int) -> bool:
        """Return whether the first run of the op in `slot` can stand in `to` instead."""
        op = self.ops[slot]
        if op == EMPTY or self.positions[op][0] != slot or self.fixed[op]:
            return False
        second = self.positions[op][1] if len(self.positions[op]) > 1 else self.size
        if to >= second or not self._in_phase(op, to) or not self.may_put(op, to):
            return False
        return all(
            not self.readers[t] or self.readers[t][0] > to for t in self.graph.ops[op].outputs
        )

    def put(self, op: int, slot: int) -> None:
        """Put `op` in an empty slot."""
        self._change(op, slot, put=True)

    def take(self, slot: int) -> int:
        """Empty a slot and return its op."""
        op = self.ops[slot]
        self._change(op, slot, put=False)
        return op

    def _in_phase(self, op: int, slot: int) -> bool:
        forward = self.graph.ops[op].phase is Phase.FORWARD
        return forward == (slot < self.backward_slot) or self.backward_slot == self.size

    def _change(self, op: int, slot: int, put: bool) -> None:
        for t in self.touched[op]:
            self._count(t, slot, -self.sizes[t])
        self.ops[slot] = op if put else EMPTY
        for places in (self.positions[op], *(self.readers[t] for t in self.inputs[op])):
            if put:
                insort(places, slot)
            else:
                del places[bisect_left(places, slot)]
        for t in self.touched[op]:
            self._count(t, slot, self.sizes[t])
        sign = 1 if put else -1
        own_bytes = self.graph.ops[op].workspace_bytes + self.pinned_bytes[op]
        self.live[slot] += sign * own_bytes
        self.time_ns += sign * self.graph.ops[op].time_ns

    def _count(self, t: int, slot: int, nbytes: int) -> None:
        """Add `nbytes` to the slots of the instances of `t` that a change in `slot` may touch."""
        made, readers = self.positions[self.source[t]], self.readers[t]
        at = bisect_left(made, slot)
        stands = at < len(made) and made[at] == slot
        for k in range(max(0, at - 1), at + stands):
            begin = made[k]
            until = made[k + 1] if k + 1 < len(made) else self.size
            last = bisect_left(readers, until) - 1
            end = readers[last] if last >= 0 and readers[last] > begin else begin
            self.live[begin : end + 1] += nbytes
