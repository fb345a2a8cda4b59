"""The page, the pictures and the trace of a plan."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from memplan.cli import main
from memplan.codegen.report import report
from memplan.codegen.trace import trace
from memplan.graph_capture.graph import Graph
from memplan.planner.pipeline import make_plan
from memplan.planner.plan import Plan
from memplan.planner.schedule import Schedule
from memplan.planner.solver import Status
from memplan.planner.tiers import Tier
from memplan.units import format_bytes
from tests.memplan.commands.model_files import write_model_file
from tests.planner.test_max_batch import chain
from tests.planner.test_swap_timelines import AWAY, tier
from tests.small_graphs import hourglass

_EMPTY = {"meta", "input", "br", "rect", "path"}


class Page(HTMLParser):
    """Checks that elements are closed in the order in which they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in _EMPTY:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in _EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif "td" in self.open:
            self.cells[-1] += data


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def moved_plan() -> Plan:
    """A plan that moves the largest tensor of the hourglass over a slow link."""
    return by_hand(hourglass(), AWAY, (tier(write=5, read=10),))


def by_hand(graph: Graph, schedule: Schedule, tiers: tuple[Tier, ...]) -> Plan:
    return Plan(
        graph=graph,
        schedule=schedule,
        budget_bytes=200,
        status=Status.FEASIBLE,
        solver="by-hand",
        proven_bound_ns=graph.time_ns,
        tiers=tiers,
    )


def test_the_page_holds_the_figures_of_the_plan_and_needs_no_network() -> None:
    plan = make_plan(chain(100), "min", solver="exhaustive")
    code = {"forward.py": "x < y\nf0_recompute_1 = f(x)\n"}
    text = report(plan, code)
    page = Page(text)
    for figure in (plan.unplanned_peak_bytes, plan.planned_peak_bytes, plan.budget_bytes):
        assert f"<b>{format_bytes(figure)}</b>" in text
    assert {"exhaustive", plan.status.value, f"{plan.overhead:+.2%}"} <= set(page.cells)
    assert page.addresses == []
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp", text)
    assert "x &lt; y" in text
    assert "<b>f0_recompute_1 = f(x)</b>" in text


def test_the_data_of_the_page_tells_the_contents_of_every_run() -> None:
    plan = make_plan(chain(100), "min", solver="exhaustive")
    data: dict[str, Any] = json.loads(Page(report(plan)).scripts[0])
    for course in (data["planned"], data["unplanned"]):
        for step, op, live in zip(course["step"], course["op"], course["live"], strict=True):
            there = [t for t, first, last in course["spans"] if first <= step <= last]
            held = sum(data["tensors"][t][1] for t in there)
            assert held + data["ops"][op][3] == live
    assert max(data["planned"]["live"]) == plan.planned_peak_bytes
    assert max(data["unplanned"]["live"]) == plan.unplanned_peak_bytes


def test_moves_have_lanes_and_waits() -> None:
    text = report(moved_plan())
    Page(text)
    for words in ("to disk", "from disk", 'class="stall"', 'class="out"', 'class="in"', "moved"):
        assert words in text


def test_names_cannot_end_the_script() -> None:
    graph = chain(100)
    evil = graph.to_json().replace('"a0"', '"</script><b>"')
    page = Page(report(make_plan(Graph.from_json(evil), "100%")))
    assert "</script><b>" in {name for name, *_ in json.loads(page.scripts[0])["tensors"]}


def test_a_trace_has_complete_events_that_do_not_overlap_on_a_lane() -> None:
    plan = moved_plan()
    found = json.loads(trace(plan))
    events = found["traceEvents"]
    assert all({"ph", "name", "pid"} <= set(event) for event in events)
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads == {0: "compute", 1: "to disk", 2: "from disk"}
    for thread in threads:
        lane = sorted(
            (e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == thread
        )
        assert lane
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(lane))
    last = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    assert last == pytest.approx(plan.planned_time_ns / 1000)
    assert max(e["args"]["bytes"] for e in events if e["ph"] == "C") <= plan.planned_peak_bytes
    assert {e["cat"] for e in events if "cat" in e} >= {"forward", "stall", "swap_out", "prefetch"}


def test_the_ending_of_the_file_says_what_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    make_plan(chain(100), "min", solver="exhaustive").save(tmp_path / "plan.json")
    for name in ("memory.svg", "memory.png", "trace.json", "page.html"):
        assert main(["report", str(tmp_path), "-o", str(tmp_path / name)]) == 0
    assert ElementTree.parse(tmp_path / "memory.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert "traceEvents" in json.loads((tmp_path / "trace.json").read_text())
    Page((tmp_path / "page.html").read_text())
    capsys.readouterr()
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "memory.gif")]) == 2
    assert "end it in .html, .svg or .json" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "there is no plan in" in capsys.readouterr().err


def test_compile_writes_the_page_with_the_generated_code(tmp_path: Path) -> None:
    path, folder = str(write_model_file(tmp_path)), tmp_path / "plan"
    argv = ["compile", path, "--budget", "90%", "--solver", "greedy", "--offline"]
    assert main([*argv, "-o", str(folder)]) == 0
    text = (folder / "report.html").read_text()
    Page(text)
    assert "def forward" in text
    assert "<summary>backward.py" in text
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text() == text
