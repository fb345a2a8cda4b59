from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memplan.errors import InvalidGraph, UsageError
from memplan.graph_capture.graph import Kind
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from tests.graphs import INSTANCES, chain

PLAIN: dict[str, Any] = {"sizes": [3, 5], "costs": [1, 2], "edges": [[0, 1]]}
TRACE: dict[str, Any] = {
    "storages": [[8, -1], [4, 0], [2, 2]],
    "ops": [
        {"name": "mm", "inputs": [0], "deps": [], "outputs": [1], "cost": 7},
        {"name": "view", "inputs": [1], "deps": [], "outputs": [], "cost": 1},
        {"name": "add", "inputs": [1, 1], "deps": [1], "outputs": [2], "cost": 3},
    ],
    "keep": [0, 2],
}


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_our_own_format_comes_back_unchanged(tmp_path: Path) -> None:
    graph = chain(3)
    assert read_graph(write(tmp_path / "g.json", graph.to_json())) == graph


def test_plain_format(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "g.json", PLAIN))
    assert graph.name == "g"
    assert [op.inputs for op in graph.ops] == [(), (0,)]
    assert [(t.nbytes, t.pinned) for t in graph.tensors] == [(3, False), (5, False)]
    assert graph.time_ns == 3


def test_trace_format(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "g.json", TRACE))
    kinds = [t.kind for t in graph.tensors]
    assert kinds == [Kind.PARAM, Kind.ACTIVATION, Kind.OUTPUT, Kind.ACTIVATION]
    assert graph.tensors[3].nbytes == 0
    assert [op.inputs for op in graph.ops] == [(0,), (1,), (1, 3)]
    assert [op.outputs for op in graph.ops] == [(1,), (3,), (2,)]
    assert [op.time_ns for op in graph.ops] == [7, 1, 3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "one JSON object"),
        ({"nodes": []}, "unknown format"),
        (PLAIN | {"sizes": [3]}, "1 sizes but 2 costs"),
        (PLAIN | {"sizes": [3, -1]}, "-1 is not a whole number"),
        (PLAIN | {"costs": [1, 1.5]}, "1.5 is not a whole number"),
        (PLAIN | {"costs": [1, True]}, "True is not a whole number"),
        (PLAIN | {"edges": [[1, 0]]}, "does not lead to a later node"),
        (PLAIN | {"edges": [[0, 2]]}, "there is no entry 2"),
        (PLAIN | {"edges": [[0]]}, "1 entries, not 2"),
        (PLAIN | {"edges": 3}, "'edges' is not a list"),
        (TRACE | {"keep": [9]}, "there is no entry 9"),
        (TRACE | {"storages": [[8], [4, 0], [2, 2]]}, "storage 0 is not"),
        (TRACE | {"ops": [{"name": "x"}]}, "op 0 lacks"),
        (TRACE | {"ops": TRACE["ops"][:2]}, "storage 2 names op 2"),
        (TRACE | {"ops": [TRACE["ops"][0] | {"deps": [0]}]}, "are no earlier views"),
        (TRACE | {"ops": TRACE["ops"][::-1]}, "are no earlier views"),
        ({"schema": "memplan.graph/1"}, "damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: Any, words: str) -> None:
    path = write(tmp_path / "g.json", content)
    with pytest.raises(InvalidGraph, match=words) as caught:
        read_graph(path)
    assert str(caught.value).startswith("g.json")


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_graph(tmp_path / "none.json")


@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
def test_published_instances_have_their_published_peak() -> None:
    for path in sorted(INSTANCES.glob("*.json")):
        graph, content = read_graph(path), json.loads(path.read_text())
        timeline = simulate(graph, schedule_of(graph, range(len(graph.ops))))
        assert timeline.peak_bytes == content["peak_without_recompute"], path.name
        assert timeline.time_ns == content["base_cost"], path.name
        for known in content["known"]:
            if "sequence" in known:
                timeline = simulate(graph, schedule_of(graph, known["sequence"]))
                assert (timeline.peak_bytes, timeline.time_ns) == (known["peak"], known["cost"])


@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
def test_published_traces_can_be_read() -> None:
    for path in sorted((INSTANCES / "dtr").glob("*.json")):
        graph, content = read_graph(path), json.loads(path.read_text())
        assert len(graph.ops) == len(content["ops"])
        assert graph.given_bytes == content["const_bytes"]
        schedule = schedule_of(graph, range(len(graph.ops)))
        assert simulate(graph, schedule).peak_bytes <= content["peak_bytes_incl_const"]
