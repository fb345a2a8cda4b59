"""Which operations a fusing compiler computes inside the kernels that read their results.

Such a result has no storage: it is computed again, from what its kernel reads, wherever it is
read. The rules are those of Inductor's lowering, which makes a pointwise result a buffer where an
operation that is no loop of its own reads it, or where it is long: a pointwise operation is inside
its readers if all of them are pointwise or reductions, it reads few buffers, and few operations
lie between. Where it has several readers it may read less, and on a CPU do nothing that is slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import torch
from torch import fx

from memplan.graph_capture.aliasing import aliased_argument, owner_of, written_argument
from memplan.graph_capture.fx_nodes import tensor_value
from memplan.graph_capture.phases import split_phases

# As `realize_reads_threshold`, `realize_acc_reads_threshold` and `realize_opcount_threshold` of
# Inductor's settings.
_MOST_READS = 4
_MOST_READS_FOR_ONE = 8
_MOST_OPS = 30

_aten = torch.ops.aten
_SLOW_ON_CPU = frozenset(
    packet.default
    for packet in (
        *(_aten.exp, _aten.log, _aten.log10, _aten.log1p, _aten.log2),
        *(_aten.sigmoid, _aten.tanh),
    )
)
_RANDOM = torch.ops.prims.inductor_random.default
_POINTWISE = frozenset(
    {
        torch.ops.prims.convert_element_type.default,
        torch.ops.prims.inductor_lookup_seed.default,
        _RANDOM,
        torch.ops.prims.iota.default,
        _aten.full.default,
    }
)
_REDUCTIONS = frozenset(
    {
        _aten.sum.default,
        _aten.sum.dim_IntList,
        _aten.mean.default,
        _aten.mean.dim,
        _aten.amax.default,
        _aten.var_mean.correction,
        _aten.var.correction,
    }
)


def fused_nodes(module: fx.GraphModule) -> Set[fx.Node]:
    """Return the nodes of a joint graph that get no storage, views of such results among them."""
    nodes = list(module.graph.nodes)
    fixed = {owner_of(w) for n in nodes if (w := written_argument(n)) is not None}
    fixed.update(owner_of(n) for n in module.graph.output_node().all_input_nodes)
    _, backward = split_phases(nodes)
    reader = _Reader(frozenset(fixed), frozenset(backward), {}, {}, set(), set())
    for node in nodes:
        reader.read(node)
    return reader.reads.keys()


@dataclass(frozen=True, slots=True)
class _Reader:
    """Decides node by node, those that a node reads first.

    Attributes:
        fixed: What has a storage whatever reads it.
        backward: The calls of the backward pass.
        reads: For each node inside its readers, the nodes of the buffers that it reads.
        ops: For each of them, how many operations it stands for.
        drawn: Those of them that draw random numbers.
        slow: Those of them that a CPU does not compute twice.
    """

    fixed: frozenset[fx.Node]
    backward: frozenset[fx.Node]
    reads: dict[fx.Node, frozenset[fx.Node]]
    ops: dict[fx.Node, int]
    drawn: set[fx.Node]
    slow: set[fx.Node]

    def read(self, node: fx.Node) -> None:
        if (source := aliased_argument(node)) is not None:
            if source in self.reads and written_argument(node) is None:
                self.reads[node], self.ops[node] = self.reads[source], self.ops[source]
                for kind in (self.drawn, self.slow):
                    if source in kind:
                        kind.add(node)
            return
        if not _is_pointwise(node) or node in self.fixed or not _all_readers_loop(node):
            return
        reads: set[fx.Node] = set()
        ops = 1
        for source in node.all_input_nodes:
            reads |= self.reads.get(source, frozenset({owner_of(source)}))
            ops += self.ops.get(source, 0)
        shared = sum((user in self.backward) is (node in self.backward) for user in node.users) > 1
        if len(reads) > (_MOST_READS if shared else _MOST_READS_FOR_ONE) or ops > _MOST_OPS:
            return
        slow = _is_slow(node) or not self.slow.isdisjoint(node.all_input_nodes)
        if shared and slow:
            return
        draws = node.target is _RANDOM or not self.drawn.isdisjoint(node.all_input_nodes)
        if self._crosses(node) and (draws or _nbytes(reads) > _nbytes({node})):
            # To draw again reads little but takes long: that is for the plan to decide.
            return
        self.reads[node], self.ops[node] = frozenset(reads), ops
        if draws:
            self.drawn.add(node)
        if slow:
            self.slow.add(node)

    def _crosses(self, node: fx.Node) -> bool:
        """Whether the forward pass makes it and the backward pass reads it."""
        return node not in self.backward and any(u in self.backward for u in node.users)


def _is_slow(node: fx.Node) -> bool:
    value = tensor_value(node)
    return node.target in _SLOW_ON_CPU and value is not None and value.device.type == "cpu"


def _is_pointwise(node: fx.Node) -> bool:
    if node.op != "call_function" or tensor_value(node) is None:
        return False
    if node.target in _POINTWISE:
        return True
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (
        torch.Tag.pointwise in target.tags and not target._schema.is_mutable
    )


def _all_readers_loop(node: fx.Node) -> bool:
    """Whether all that read `node`, or a view of it, are loops that it can be a part of."""
    for user in node.users:
        if aliased_argument(user) is node:
            if written_argument(user) is not None or not _all_readers_loop(user):
                return False
        elif not _is_pointwise(user) and user.target not in _REDUCTIONS:
            return False
    return True


def _nbytes(nodes: set[fx.Node]) -> int:
    values = (tensor_value(node) for node in nodes)
    return sum(v.untyped_storage().nbytes() for v in values if v is not None)


def read_through(node: fx.Node, fused: Mapping[fx.Node, object] | Set[fx.Node]) -> list[fx.Node]:
    """Return what an op reads, in order, with what it computes inside itself left out."""
    found: dict[fx.Node, None] = {}
    seen: set[fx.Node] = set()
    pending = list(reversed(node.all_input_nodes))
    while pending:
        source = pending.pop()
        if source in seen:
            continue
        seen.add(source)
        if source in fused:
            pending.extend(reversed(source.all_input_nodes))
        else:
            found[source] = None
    return list(found)
