"""Reads graphs from files: our own format, plain node lists and DTR operator traces.

The format is told by the keys of the file, so no flag is needed:

* `schema`: what `Graph.to_json` wrote.
* `sizes`, `costs`, `edges`: node `i` makes one tensor of `sizes[i]` bytes in `costs[i]`
  nanoseconds (whatever their true units are); an edge `[u, v]` with u < v lets v read it. Every
  tensor may be freed and every op belongs to the forward phase.
* `storages`, `ops`, `keep`: an operator trace of Dynamic Tensor Rematerialization (ICLR 2021).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memplan.errors import InvalidGraph, UsageError
from memplan.graph_capture.graph import Graph, Kind, Op, Tensor


def read_graph(path: str | Path) -> Graph:
    """Return the graph in a JSON file of any of the three formats above.

    Raises:
        UsageError: The file cannot be read.
        InvalidGraph: It is not JSON, of no known format, or damaged; the text says where.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the graph file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read the graph file {path}: it is not text") from None
    try:
        content = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidGraph(f"{path.name} is not JSON: {error}") from None
    try:
        return _graph_of(content, path.stem)
    except InvalidGraph as error:
        raise InvalidGraph(f"{path.name}: {error}") from None


def _graph_of(content: Any, stem: str) -> Graph:
    if not isinstance(content, dict):
        raise InvalidGraph("a graph file holds one JSON object")
    if "schema" in content:
        return Graph.from_dict(content)
    if {"sizes", "costs", "edges"} <= content.keys():
        return _plain_graph(content, stem)
    if {"storages", "ops", "keep"} <= content.keys():
        return _trace_graph(content, stem)
    raise InvalidGraph(
        "unknown format; expected 'schema', or 'sizes', 'costs' and 'edges', "
        "or 'storages', 'ops' and 'keep'"
    )


def _plain_graph(content: dict[str, Any], stem: str) -> Graph:
    sizes = _naturals(content["sizes"], "sizes")
    costs = _naturals(content["costs"], "costs")
    if len(sizes) != len(costs):
        raise InvalidGraph(f"{len(sizes)} sizes but {len(costs)} costs")
    inputs: list[set[int]] = [set() for _ in sizes]
    for edge in _list(content["edges"], "edges"):
        u, v = _indices(edge, len(sizes), "an edge", length=2)
        if u >= v:
            raise InvalidGraph(f"edge [{u}, {v}] does not lead to a later node")
        inputs[v].add(u)
    return Graph(
        name=str(content.get("name", stem)),
        ops=tuple(
            Op(name=f"n{i}", inputs=tuple(sorted(read)), outputs=(i,), time_ns=costs[i])
            for i, read in enumerate(inputs)
        ),
        tensors=tuple(Tensor(name=f"t{i}", nbytes=size) for i, size in enumerate(sizes)),
    )


def _trace_graph(content: dict[str, Any], stem: str) -> Graph:
    """Read a DTR trace.

    Storages that no op makes are constants, so parameters; storages in `keep` are there at the
    end, so outputs. An op without outputs makes a view, whose readers name the op in `deps`: it
    gets a tensor of no bytes, so that no reader runs before it.
    """
    rows = _list(content["storages"], "storages")
    kept = set(_indices(content["keep"], len(rows), "'keep'"))
    tensors = [_trace_tensor(i, row, i in kept) for i, row in enumerate(rows)]
    steps = _list(content["ops"], "ops")
    views: dict[int, int] = {}
    ops = []
    for j, step in enumerate(steps):
        if not isinstance(step, dict) or not {"inputs", "outputs", "cost"} <= step.keys():
            raise InvalidGraph(f"op {j} lacks 'inputs', 'outputs' or 'cost'")
        outputs = _indices(step["outputs"], len(rows), f"the outputs of op {j}")
        if not outputs:
            views[j] = len(tensors)
            outputs = (views[j],)
            tensors.append(Tensor(name=f"view{j}", nbytes=0))
        reads = dict.fromkeys(_indices(step["inputs"], len(rows), f"the inputs of op {j}"))
        deps = _indices(step.get("deps", []), len(steps), f"the deps of op {j}")
        if unknown := [k for k in deps if k not in views]:
            raise InvalidGraph(f"op {j} depends on ops {unknown}, which are no earlier views")
        reads |= dict.fromkeys(views[k] for k in deps)
        (time_ns,) = _naturals([step["cost"]], f"the cost of op {j}")
        name = str(step.get("name", "op"))
        ops.append(
            Op(
                name=f"{name}_{j}",
                target=name,
                inputs=tuple(reads),
                outputs=outputs,
                time_ns=time_ns,
            )
        )
    _check_producers(rows, ops)
    return Graph(name=str(content.get("title", stem)), ops=tuple(ops), tensors=tuple(tensors))


def _check_producers(rows: list[Any], ops: list[Op]) -> None:
    made = {(t, j) for j, op in enumerate(ops) for t in op.outputs}
    for i, (_, source) in enumerate(rows):
        if source >= 0 and (i, source) not in made:
            raise InvalidGraph(f"storage {i} names op {source}, which does not make it")


def _trace_tensor(i: int, row: Any, kept: bool) -> Tensor:
    if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], int):
        raise InvalidGraph(f"storage {i} is not [bytes, producing op]")
    (nbytes,) = _naturals(row[:1], f"the bytes of storage {i}")
    kind = Kind.PARAM if row[1] < 0 else Kind.OUTPUT if kept else Kind.ACTIVATION
    return Tensor(name=f"s{i}", nbytes=nbytes, kind=kind)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidGraph(f"{what!r} is not a list")
    return value


def _naturals(value: Any, what: str) -> tuple[int, ...]:
    items = _list(value, what)
    for item in items:
        if not isinstance(item, int) or isinstance(item, bool) or item < 0:
            raise InvalidGraph(f"{what}: {item!r} is not a whole number of at least 0")
    return tuple(items)


def _indices(value: Any, end: int, what: str, length: int | None = None) -> tuple[int, ...]:
    items = _naturals(value, what)
    if length is not None and len(items) != length:
        raise InvalidGraph(f"{what} has {len(items)} entries, not {length}")
    if items and max(items) >= end:
        raise InvalidGraph(f"{what}: there is no entry {max(items)}, the last is {end - 1}")
    return items
