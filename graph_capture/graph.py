"""The one IR: what a training step computes, in order, and what each part costs.

A `Graph` is a fact about a model on a device. It holds no decision: budgets belong to
`memplan.planner.problem`, decisions to `memplan.planner.schedule`. Tensors and ops are named
by their index (`graph.tensors[i]`, `graph.ops[j]`); their `name` is for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memplan.errors import InvalidGraph

if TYPE_CHECKING:
    import networkx

SCHEMA = "memplan.graph/1"


class Phase(Enum):
    """The part of a training step that an operation belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class Kind(Enum):
    """What a tensor is to the user; decides whether a plan may free it."""

    INPUT = "input"
    PARAM = "param"
    BUFFER = "buffer"
    OPTIMIZER_STATE = "optimizer_state"
    OUTPUT = "output"
    GRADIENT = "gradient"
    ACTIVATION = "activation"
    TEMPORARY = "temporary"


_FREEABLE = frozenset({Kind.ACTIVATION, Kind.TEMPORARY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One storage that an operation makes, or that the step is given.

    Views share their base's storage and so are no `Tensor` of their own.
    """

    name: str
    nbytes: int
    kind: Kind = Kind.ACTIVATION

    @property
    def pinned(self) -> bool:
        """Whether it stays on the device from its birth to the end of the step."""
        return self.kind not in _FREEABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation, at its place in the captured order.

    Attributes:
        inputs: Tensors it reads, by index, each once.
        outputs: Tensors it writes, by index; a tensor has one producer at most.
        workspace_bytes: Extra device memory while the operation runs, free again after it.
        recomputable: False where a second run would differ or repeat a side effect.
        in_order: First runs of these ops keep the captured order (random draws, side effects).
        module: Path of the module that called it, such as `h.0.attn`.
    """

    name: str
    target: str = ""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    phase: Phase = Phase.FORWARD
    time_ns: int = 0
    workspace_bytes: int = 0
    recomputable: bool = True
    in_order: bool = False
    module: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Operations in one valid execution order, with the tensors between them.

    Tensors without a producer are there from the start.

    Raises:
        InvalidGraph: An index is out of range, a tensor is read before it is made or made
            twice, a size or cost is negative, or a tensor can be freed but never made.
    """

    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    name: str = ""
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where the graph comes from: versions, device of the profile, hash of the FX graph."""

    def __post_init__(self) -> None:
        produced = {t for op in self.ops for t in op.outputs}
        if sum(len(op.outputs) for op in self.ops) != len(produced):
            raise InvalidGraph("a tensor is written by two operations")
        if produced and not 0 <= min(produced) <= max(produced) < len(self.tensors):
            raise InvalidGraph("an operation writes a tensor that is not in the graph")
        ready = set(range(len(self.tensors))) - produced
        for op in self.ops:
            if missing := [t for t in op.inputs if t not in ready]:
                raise InvalidGraph(f"{op.name!r} reads {missing} before it is made")
            if len(set(op.inputs)) != len(op.inputs):
                raise InvalidGraph(f"{op.name!r} lists an input twice")
            if op.time_ns < 0 or op.workspace_bytes < 0:
                raise InvalidGraph(f"{op.name!r} has a negative cost")
            ready |= set(op.outputs)
        for i, tensor in enumerate(self.tensors):
            if tensor.nbytes < 0:
                raise InvalidGraph(f"{tensor.name!r} has a negative size")
            if i not in produced and not tensor.pinned:
                raise InvalidGraph(f"{tensor.name!r} could be freed but nothing makes it")

    def __repr__(self) -> str:
        return (
            f"<Graph {self.name!r}: {len(self.ops):,} ops, {len(self.tensors):,} tensors, "
            f"{self.given_bytes:,} bytes given, {self.time_ns:,} ns>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the text of its file: short, checked when read, the same in every version."""
        return Graph.from_json, (self.to_json(),)

    @cached_property
    def producer(self) -> tuple[int | None, ...]:
        """For each tensor, the op that writes it; None where the step is given it."""
        made: list[int | None] = [None] * len(self.tensors)
        for i, op in enumerate(self.ops):
            for t in op.outputs:
                made[t] = i
        return tuple(made)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor, the ops that read it, in order."""
        readers: list[list[int]] = [[] for _ in self.tensors]
        for i, op in enumerate(self.ops):
            for t in op.inputs:
                readers[t].append(i)
        return tuple(map(tuple, readers))

    @cached_property
    def boundary(self) -> int:
        """Index of the first op that is not of the forward phase; `len(ops)` if there is none."""
        later = (i for i, op in enumerate(self.ops) if op.phase is not Phase.FORWARD)
        return next(later, len(self.ops))

    @cached_property
    def time_ns(self) -> int:
        """Time of the step with every op run once."""
        return sum(op.time_ns for op in self.ops)

    @cached_property
    def given_bytes(self) -> int:
        """Bytes on the device from the start: parameters, buffers, optimizer state, inputs."""
        return sum(
            t.nbytes for t, made in zip(self.tensors, self.producer, strict=True) if made is None
        )

    def networkx(self) -> networkx.DiGraph[int]:
        """Return ops as nodes; an edge u -> v where v reads a tensor that u writes."""
        import networkx

        graph: networkx.DiGraph[int] = networkx.DiGraph()
        graph.add_nodes_from(range(len(self.ops)))
        for t, source in enumerate(self.producer):
            if source is not None:
                graph.add_edges_from((source, reader) for reader in self.consumers[t])
        return graph

    def to_json(self) -> str:
        """Return the graph as JSON text that `from_json` reads back unchanged."""
        tensors = [asdict(t) | {"kind": t.kind.value} for t in self.tensors]
        ops = [asdict(op) | {"phase": op.phase.value} for op in self.ops]
        content = {
            "schema": SCHEMA,
            "name": self.name,
            "provenance": dict(self.provenance),
            "tensors": tensors,
            "ops": ops,
        }
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """Read what `to_json` wrote.

        Raises:
            InvalidGraph: The text is not such a graph; the message names what is wrong.
        """
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidGraph(f"the graph is not JSON: {error}") from None
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Any) -> Graph:
        """Build a graph from the parsed JSON of `to_json`.

        Raises:
            InvalidGraph: A key is missing or has the wrong type.
        """
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise InvalidGraph(f"not a graph file: its 'schema' is not {SCHEMA!r}")
        try:
            return cls(
                name=content["name"],
                provenance=MappingProxyType(dict(content["provenance"])),
                tensors=tuple(_read_tensor(t) for t in content["tensors"]),
                ops=tuple(_read_op(op) for op in content["ops"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidGraph(f"the graph file is damaged: {error!r}") from None


def _read_tensor(fields: dict[str, Any]) -> Tensor:
    _require_whole(fields["nbytes"])
    return Tensor(**{**fields, "kind": Kind(fields["kind"])})


def _read_op(fields: dict[str, Any]) -> Op:
    _require_whole(*fields["inputs"], *fields["outputs"])
    _require_whole(fields.get("time_ns", 0), fields.get("workspace_bytes", 0))
    return Op(
        **{
            **fields,
            "inputs": tuple(fields["inputs"]),
            "outputs": tuple(fields["outputs"]),
            "phase": Phase(fields["phase"]),
        }
    )


def _require_whole(*values: Any) -> None:
    for value in values:
        if type(value) is not int:
            raise TypeError(f"{value!r} is not a whole number")
