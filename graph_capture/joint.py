"""A traced joint forward+backward FX graph, read as a `Graph` of storages and ops.

The reading is a pure function of the FX graph: same model, shapes and versions give the same
`Graph` and the same hash, with real or fake tensors, in any process.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from torch import fx

from memplan.errors import CaptureError, PlanMismatch
from memplan.graph_capture.aliasing import aliased_argument, owner_of, written_argument
from memplan.graph_capture.fusion import read_through
from memplan.graph_capture.fx_nodes import tensor_value, tensor_values
from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.graph_capture.module_path import module_path
from memplan.graph_capture.phases import is_tangent, needed_nodes, split_phases
from memplan.graph_capture.randomness import (
    STATE_BYTES,
    device_type_of,
    has_side_effect,
    is_random,
)
from memplan.graph_capture.running_statistics import statistics_read
from memplan.graph_capture.user_code import frames_in, user_line

BOUNDARY = "memplan.backward_starts"
RANDOM_STATE = "memplan.random_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInput:
    """What the caller passes for one `primals_*` placeholder."""

    name: str
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class JointGraph:
    """A joint FX graph and its reading.

    Attributes:
        module: The traced graph, unchanged.
        num_forward_outputs: How many of its outputs belong to the forward pass.
        graph: Storages and ops; ops in the order forward, boundary, backward.
        nodes: For each op of `graph`, its FX node; None for the boundary and random states.
        storage_of: The tensor index of each FX node that holds one tensor.
        owner: For each tensor index, the FX node that owns the storage; None where no node
            does (random states).
        random_state: For each random op, the tensor that holds the generator's state.
        trained: Names of the parameters and inputs that get a gradient.
        fused: Nodes that are computed inside the ops that read them and have no storage.
        digest: Hash of the FX graph: names, targets, arguments, shapes, strides, dtypes.
    """

    module: fx.GraphModule
    num_forward_outputs: int
    graph: Graph
    nodes: tuple[fx.Node | None, ...]
    storage_of: Mapping[fx.Node, int]
    owner: tuple[fx.Node | None, ...]
    random_state: Mapping[int, int]
    trained: frozenset[str]
    digest: str
    fused: Set[fx.Node] = frozenset()

    def __repr__(self) -> str:
        return f"<JointGraph {self.digest}: {self.graph!r}>"

    def with_graph(self, graph: Graph) -> JointGraph:
        """Return the same reading with a graph that adds costs, or ops and tensors at its end.

        Raises:
            PlanMismatch: `graph` was read from another joint graph.
        """
        if graph.provenance.get("graph_hash") != self.digest:
            raise PlanMismatch(
                "the plan was made for another model, other input shapes or another version of "
                "torch; make it again with `memplan compile`"
            )
        more_ops = len(graph.ops) - len(self.nodes)
        more_tensors = len(graph.tensors) - len(self.owner)
        return replace(
            self,
            graph=graph,
            nodes=self.nodes + (None,) * more_ops,
            owner=self.owner + (None,) * more_tensors,
        )


def read_joint(
    module: fx.GraphModule,
    num_forward_outputs: int,
    given: Sequence[GivenInput],
    name: str = "",
    fused: Set[fx.Node] = frozenset(),
) -> JointGraph:
    """Read a joint graph as AOTAutograd hands it to a partition function.

    Args:
        module: Placeholders `primals_*` then `tangents_*`; every node has `meta["val"]`.
        num_forward_outputs: How many leading outputs the forward pass returns.
        given: For each primal, in order, its name and kind.
        name: A name for the graph.
        fused: Nodes that the ops that read them compute themselves; see `fusion`.

    Raises:
        CaptureError: The graph has dynamic shapes.
    """
    reader = _Reader(module, num_forward_outputs, (*_tokens(module, given), *given), fused)
    reader.read()
    graph = Graph(
        name=name,
        ops=tuple(reader.ops),
        tensors=tuple(reader.tensors),
        provenance=MappingProxyType({"graph_hash": reader.digest, "torch": torch.__version__}),
    )
    return JointGraph(
        module=module,
        num_forward_outputs=num_forward_outputs,
        graph=graph,
        nodes=tuple(reader.nodes),
        storage_of=MappingProxyType(reader.storage_of),
        owner=tuple(reader.owner),
        random_state=MappingProxyType(reader.random_state),
        trained=reader.trained(),
        digest=reader.digest,
        fused=fused,
    )


def digest_of(graph: fx.Graph) -> str:
    """Return a hash of everything that decides what the graph computes."""
    text = hashlib.sha256()
    for node in graph.nodes:
        values = [
            (tuple(v.shape), tuple(v.stride()), str(v.dtype), v.device.type)
            if v is not None
            else None
            for v in tensor_values(node)
        ]
        text.update(f"{node.name}|{node.target}|{node.args}|{node.kwargs}|{values}\n".encode())
    return text.hexdigest()[:32]


@dataclass
class _Reader:
    module: fx.GraphModule
    num_forward_outputs: int
    given: Sequence[GivenInput]
    fused: Set[fx.Node]
    ops: list[Op] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[fx.Node | None] = field(default_factory=list)
    storage_of: dict[fx.Node, int] = field(default_factory=dict)
    owner: list[fx.Node | None] = field(default_factory=list)
    outputs_of: dict[fx.Node, tuple[int, ...]] = field(default_factory=dict)
    random_state: dict[int, int] = field(default_factory=dict)
    digest: str = ""

    def read(self) -> None:
        nodes = list(self.module.graph.nodes)
        _refuse_dynamic_shapes(nodes)
        self.digest = digest_of(self.module.graph)
        self.needed = needed_nodes(self.module.graph)
        self.output_kind = self._output_kinds()
        self.mutated = {owner_of(w) for n in nodes if (w := written_argument(n)) is not None}
        primals = [n for n in nodes if n.op == "placeholder" and not is_tangent(n)]
        for node, given in zip(primals, self.given, strict=True):
            self._add_tensor(node, tensor_value(node), given.name, given.kind)
        for node in nodes:
            if node.op == "get_attr" and tensor_value(node) is not None:
                self._add_tensor(node, tensor_value(node), str(node.target), Kind.BUFFER)
        forward, backward = split_phases(nodes)
        for node in forward:
            if node in self.needed:
                self._read_call(node, Phase.FORWARD)
        self._add_boundary([n for n in nodes if is_tangent(n)])
        for node in backward:
            if node in self.needed:
                self._read_call(node, Phase.BACKWARD)

    def trained(self) -> frozenset[str]:
        """Return the names of the primals whose gradient the backward pass returns."""
        outputs = self.module.graph.output_node().args[0]
        assert isinstance(outputs, (tuple, list))
        gradients = outputs[self.num_forward_outputs :]
        pairs = zip(self.given, gradients, strict=False)
        return frozenset(given.name for given, gradient in pairs if gradient is not None)

    def _output_kinds(self) -> dict[fx.Node, Kind]:
        """Kinds of the storages, by owner, that leave the graph."""
        outputs = self.module.graph.output_node().args[0]
        assert isinstance(outputs, (tuple, list))
        kinds: dict[fx.Node, Kind] = {}
        for position, node in enumerate(outputs):
            if isinstance(node, fx.Node):
                forward = position < self.num_forward_outputs
                kinds.setdefault(owner_of(node), Kind.OUTPUT if forward else Kind.GRADIENT)
        return kinds

    def _add_tensor(
        self, node: fx.Node | None, value: torch.Tensor | None, name: str, kind: Kind
    ) -> int:
        nbytes = 0 if value is None else value.untyped_storage().nbytes()
        self.tensors.append(Tensor(name=name, nbytes=nbytes, kind=kind))
        self.owner.append(node)
        index = len(self.tensors) - 1
        if node is not None:
            self.storage_of[node] = index
        return index

    def _add_boundary(self, tangents: list[fx.Node]) -> None:
        """Add the op at which the caller turns from forward to backward.

        It reads everything the forward pass returns and gives the backward pass its tangents,
        which the autograd engine holds until the backward pass returns.
        """
        outputs = self.module.graph.output_node().args[0]
        assert isinstance(outputs, (tuple, list))
        returned = dict.fromkeys(
            self.storage_of[n]
            for n in outputs[: self.num_forward_outputs]
            if isinstance(n, fx.Node) and n in self.storage_of
        )
        born = tuple(self._add_tensor(n, tensor_value(n), n.name, Kind.INPUT) for n in tangents)
        self.ops.append(
            Op(
                name="backward_starts",
                target=BOUNDARY,
                inputs=tuple(returned),
                outputs=born,
                phase=Phase.BACKWARD,
                recomputable=False,
                in_order=True,
            )
        )
        self.nodes.append(None)

    def _read_call(self, node: fx.Node, phase: Phase) -> None:
        if node in self.fused:
            return
        if node.target is operator.getitem:
            source, position = node.args
            if source in self.outputs_of and isinstance(position, int):
                assert isinstance(source, fx.Node)
                self.storage_of[node] = self.outputs_of[source][position]
                self.owner[self.storage_of[node]] = node
            elif source in self.storage_of:
                self.storage_of[node] = self.storage_of[source]  # type: ignore[index]
            return
        alias = aliased_argument(node)
        written = written_argument(node)
        if alias is not None and alias in self.storage_of:
            self.storage_of[node] = self.storage_of[alias]
            if written is None:
                return
        self._add_op(node, phase, fresh=alias is None)

    def _add_op(self, node: fx.Node, phase: Phase, fresh: bool) -> None:
        inputs = dict.fromkeys(
            self.storage_of[n] for n in read_through(node, self.fused) if _holds_tensor(n)
        )
        random, effect = is_random(node), has_side_effect(node)
        if random and not effect:
            inputs[self._add_random_state(node, phase)] = None
        outputs = self._add_outputs(node, phase) if fresh else ()
        self.ops.append(
            Op(
                name=node.name,
                target=str(node.target),
                inputs=tuple(inputs),
                outputs=outputs,
                phase=phase,
                # A replay from a saved state keeps the current one aside meanwhile.
                workspace_bytes=_state_bytes(node) if random else 0,
                recomputable=not effect and not self._reads_mutated(node),
                in_order=random or effect,
                module=module_path(node),
            )
        )
        self.nodes.append(node)

    def _add_outputs(self, node: fx.Node, phase: Phase) -> tuple[int, ...]:
        plain = Kind.ACTIVATION if phase is Phase.FORWARD else Kind.TEMPORARY
        value = node.meta.get("val")
        if not isinstance(value, (tuple, list)):
            kind = self.output_kind.get(node, plain)
            return (self._add_tensor(node, tensor_value(node), node.name, kind),)
        made: list[int] = []
        leaving = {n.args[1]: self.output_kind[n] for n in node.users if n in self.output_kind}
        for position, part in enumerate(tensor_values(node)):
            kind = leaving.get(position, plain)
            made.append(self._add_tensor(None, part, f"{node.name}.{position}", kind))
        self.outputs_of[node] = tuple(made)
        return tuple(made)

    def _add_random_state(self, node: fx.Node, phase: Phase) -> int:
        """Add an op that takes the generator's state before `node` draws from it."""
        nbytes = _state_bytes(node)
        name = f"{node.name}_random_state"
        self.tensors.append(Tensor(name=name, nbytes=nbytes))
        self.owner.append(None)
        state = len(self.tensors) - 1
        self.ops.append(
            Op(
                name=name,
                target=RANDOM_STATE,
                inputs=(),
                outputs=(state,),
                phase=phase,
                recomputable=False,
                in_order=True,
                module=module_path(node),
            )
        )
        self.nodes.append(None)
        self.random_state[len(self.ops)] = state
        return state

    def _reads_mutated(self, node: fx.Node) -> bool:
        """Whether a second run could read a buffer that was updated since the first."""
        read = {owner_of(n) for n in read_through(node, self.fused)}
        read -= {owner_of(n) for n in statistics_read(node)}
        return bool(read & self.mutated)


def _tokens(module: fx.GraphModule, given: Sequence[GivenInput]) -> list[GivenInput]:
    """Return what the tracer passes before the caller's inputs to keep checks in their order."""
    primals = [n for n in module.graph.find_nodes(op="placeholder") if not is_tangent(n)]
    names = [node.name for node in primals[: len(primals) - len(given)]]
    return [GivenInput(name=name, kind=Kind.INPUT) for name in names]


def _refuse_dynamic_shapes(nodes: Sequence[fx.Node]) -> None:
    for node in nodes:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            line = user_line(frames_in(node.stack_trace or ""))
            at = f", at {line}" if line else ""
            raise CaptureError(
                f"{node.name!r} is a number that depends on the values of a tensor{at}; "
                "memplan needs static shapes"
            )


def _holds_tensor(node: fx.Node) -> bool:
    """Whether a storage stands for the node: not so for sub-modules and numbers."""
    return any(value is not None for value in tensor_values(node))


def _state_bytes(node: fx.Node) -> int:
    return STATE_BYTES.get(device_type_of(node), STATE_BYTES["cpu"])
