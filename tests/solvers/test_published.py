"""The judge, and the solvers, against what the authors published."""

from __future__ import annotations

import json

import pytest

from memplan.graph_capture.graph_files import read_graph
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from tests.graphs import INSTANCES

needs_instances = pytest.mark.skipif(
    not INSTANCES.is_dir(), reason="no published instances beside the checkout"
)


@needs_instances
@pytest.mark.parametrize("name", ["vgg16", "unet", "mobilenet", "r50"])
def test_gurobis_schedules_cost_and_take_what_was_published(name: str) -> None:
    """All 21 of Checkmate's schedules by up to a day of Gurobi, from MONeT's authors."""
    path = INSTANCES / f"monet_{name}.json"
    graph, known = read_graph(path), json.loads(path.read_text())["known"]
    assert len(known) == (3 if name == "vgg16" else 6)
    for row in known:
        schedule = schedule_of(graph, row["sequence"])
        verify(Problem(graph=graph, budget_bytes=row["budget"]), schedule)
        timeline = simulate(graph, schedule)
        assert (timeline.time_ns, timeline.peak_bytes) == (row["cost"], row["peak"])
