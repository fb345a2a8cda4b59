from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from memplan.errors import InvalidGraph
from memplan.graph_capture.graph import SCHEMA, Graph, Kind, Op, Phase, Tensor
from tests.small_graphs import chain, diamond, hourglass, two_outputs

X = Tensor(name="x", nbytes=1, kind=Kind.INPUT)
A = Tensor(name="a", nbytes=1)


@pytest.mark.parametrize(
    ("tensors", "ops", "message"),
    [
        ((X,), (Op(name="f", inputs=(0,), outputs=(1,)),), "not in the graph"),
        ((X, A), (Op(name="f", inputs=(0,), outputs=(-1,)),), "not in the graph"),
        ((X,), (Op(name="f", inputs=(1,), outputs=()),), r"'f' reads \[1\] before it is made"),
        ((X, A), (Op(name="f", inputs=(1,), outputs=(1,)),), "before it is made"),
        ((X, A), (Op(name="f", inputs=(0, 0), outputs=(1,)),), "an input twice"),
        ((X, A), (Op(name="f", inputs=(0,), outputs=(1, 1)),), "written by two"),
        ((X, A), (Op(name="f", inputs=(0,), outputs=(1,)),) * 2, "written by two"),
        ((X, A), (), "'a' could be freed but nothing makes it"),
        ((replace(X, nbytes=-1),), (), "'x' has a negative size"),
        ((X,), (Op(name="f", inputs=(), outputs=(), time_ns=-1),), "negative cost"),
        ((X,), (Op(name="f", inputs=(), outputs=(), workspace_bytes=-1),), "negative cost"),
    ],
)
def test_rules_of_the_ir(tensors: tuple[Tensor, ...], ops: tuple[Op, ...], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        Graph(tensors=tensors, ops=ops)


def test_only_activations_and_temporaries_can_be_freed() -> None:
    freeable = [kind for kind in Kind if not Tensor(name="t", nbytes=1, kind=kind).pinned]
    assert freeable == [Kind.ACTIVATION, Kind.TEMPORARY]


def test_derived_views() -> None:
    graph = two_outputs()
    assert graph.producer == (None, 0, 0, 1, 2)
    assert graph.consumers == ((0,), (1, 2), (2,), (2,), ())
    assert (graph.boundary, graph.time_ns, graph.given_bytes) == (3, 7, 1)
    assert hourglass().boundary == 3


def test_networkx_has_an_edge_from_each_writer_to_its_readers() -> None:
    drawn = diamond().networkx()
    assert sorted(drawn.nodes) == [0, 1, 2, 3]
    assert sorted(drawn.edges) == [(0, 1), (0, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize("graph", [chain(), diamond(), two_outputs(), hourglass()])
def test_json_both_ways(graph: Graph) -> None:
    assert Graph.from_json(graph.to_json()) == graph


def test_json_keeps_every_field() -> None:
    op = Op(
        name="drop",
        target="aten.dropout",
        inputs=(0,),
        outputs=(1,),
        phase=Phase.UPDATE,
        time_ns=7,
        workspace_bytes=8,
        recomputable=False,
        in_order=True,
        module="h.0",
    )
    graph = Graph(name="g", tensors=(X, A), ops=(op,), provenance=MappingProxyType({"torch": "2"}))
    again = Graph.from_json(graph.to_json())
    assert again == graph
    assert again.to_json() == graph.to_json()
    assert dict(again.provenance) == {"torch": "2"}


def damaged(**changes: Any) -> str:
    return json.dumps(json.loads(chain().to_json()) | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a graph file"),
        ("{}", f"'schema' is not '{SCHEMA}'"),
        (damaged(schema="memplan.graph/0"), "not a graph file"),
        (damaged(tensors=None), "damaged"),
        (damaged(tensors=[{"name": "x"}]), "damaged"),
        (damaged(tensors=[{"name": "x", "nbytes": 1, "kind": "pet"}]), "damaged"),
        (damaged(tensors=[{"name": "x", "nbytes": "1", "kind": "input"}]), "damaged"),
        (damaged(tensors=[{"name": "x", "nbytes": 1.5, "kind": "input"}]), "damaged"),
        (damaged(ops=[{"name": "f"}]), "damaged"),
        (damaged(ops=[{"name": "f", "inputs": [0], "outputs": [0], "phase": "x"}]), "damaged"),
        (damaged(ops=[{"name": "f", "inputs": [0.0], "outputs": [1]}]), "not a whole number"),
        (damaged(ops=[{"name": "f", "inputs": [], "outputs": [], "time_ns": 1e3}]), "damaged"),
        (damaged(ops=[{"name": "f", "inputs": 0, "outputs": [1], "phase": "update"}]), "damaged"),
        (damaged(ops=[]), "nothing makes it"),
        (damaged(provenance=3), "damaged"),
    ],
)
def test_damaged_files_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InvalidGraph, match=message) as caught:
        Graph.from_json(text)
    assert "\n" not in str(caught.value)
