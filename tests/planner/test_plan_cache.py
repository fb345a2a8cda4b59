"""The same question is solved once; what does not hold is solved again."""

from __future__ import annotations

import json
import logging
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from memplan.cli import main
from memplan.errors import InfeasibleBudget
from memplan.planner import plan_cache
from memplan.planner.pipeline import make_plan
from memplan.planner.plan import Plan
from memplan.planner.plan_cache import PlanCache, cache_content, question_of
from memplan.planner.problem import Limits
from tests.graphs import chain

GRAPH = chain(6, nbytes=100, time_ns=10)
LIMITS = Limits(time_s=2.0)


@pytest.fixture(autouse=True)
def _plans_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMPLAN_PLAN_CACHE", "on")
    monkeypatch.setenv("MEMPLAN_CACHE_DIR", os.fspath(tmp_path))


class Solving:
    """Makes a plan and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Plan:
        self.times += 1
        return make_plan(GRAPH, "70%", solver="greedy", limits=LIMITS)


def ask(solving: Solving, budget: str = "70%", time_s: float = 2.0) -> Plan:
    question = question_of(budget, "greedy", Limits(time_s=time_s), ())
    return PlanCache().plan(GRAPH, question, solving)


def test_a_question_is_solved_once() -> None:
    solving = Solving()
    first, again = ask(solving), ask(solving)
    assert solving.times == 1
    assert replace(again, notes=first.notes) == first
    assert again.notes[-1].startswith("Taken from the plan cache")
    assert again.provenance == first.provenance


def test_another_question_is_solved_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    solving = Solving()
    ask(solving)
    ask(solving, budget="71%")
    ask(solving, time_s=3.0)
    monkeypatch.setattr(plan_cache, "version", lambda name: "another")
    ask(solving)
    assert solving.times == 4


def test_switched_off_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPLAN_PLAN_CACHE", "off")
    solving = Solving()
    ask(solving)
    ask(solving)
    assert solving.times == 2
    assert cache_content().plans == 0


def only_file(folder: Path) -> Path:
    (path,) = (folder / "plans").iterdir()
    return path


@pytest.mark.parametrize("damage", ["cut", "schedule", "graph", "no text"])
def test_a_damaged_plan_is_dropped_with_a_warning(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    solving = Solving()
    first = ask(solving)
    path = only_file(tmp_path)
    text = path.read_text(encoding="utf-8")
    content = json.loads(text)
    if damage == "cut":
        path.write_text(text[: len(text) // 2], encoding="utf-8")
    elif damage == "schedule":
        content["schedule"] = content["schedule"][:-2]
        path.write_text(json.dumps(content), encoding="utf-8")
    elif damage == "graph":
        other = make_plan(chain(5, nbytes=100, time_ns=10), "70%", solver="greedy", limits=LIMITS)
        path.write_text(other.to_json(), encoding="utf-8")
    else:
        path.write_bytes(b"\xff\xfe\x00")
    with caplog.at_level(logging.WARNING):
        assert ask(solving) == first
    assert "dropping a damaged plan" in caplog.text
    assert solving.times == 2
    ask(solving)
    assert solving.times == 2


def test_a_folder_that_cannot_be_written_to_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "plans").write_text("a file")
    solving = Solving()
    assert ask(solving) == solving()
    assert "cannot keep a plan" in caplog.text


def test_what_cannot_be_met_is_not_kept() -> None:
    def make() -> Plan:
        return make_plan(GRAPH, 1, solver="greedy", limits=LIMITS)

    with pytest.raises(InfeasibleBudget):
        PlanCache().plan(GRAPH, question_of(1, "greedy", LIMITS, ()), make)
    assert cache_content().plans == 0


def test_the_longest_unused_plans_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solving = Solving()
    ask(solving, budget="70%")
    oldest = only_file(tmp_path)
    os.utime(oldest, (1, 1))
    ask(solving, budget="75%")
    monkeypatch.setattr(plan_cache, "MOST_BYTES", 2 * oldest.stat().st_size + 100)
    ask(solving, budget="80%")
    assert not oldest.exists()
    assert cache_content().plans == 2


def ask_many(number: int) -> int:
    solving = Solving()
    return sum(ask(solving).planned_peak_bytes for _ in range(number))


def test_processes_share_the_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        peaks = list(pool.map(ask_many, [5, 5, 5]))
    assert len(set(peaks)) == 1
    solving = Solving()
    ask(solving)
    assert solving.times == 0
    assert [path.suffix for path in (tmp_path / "plans").iterdir()] == [".json"]


def test_commands_show_and_clear_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ask(Solving())
    (tmp_path / "op-costs-here.jsonl").write_text("")
    assert main(["cache", "info", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["plans"], shown["cost_files"], shown["plans_kept"]) == (1, 1, True)
    assert main(["cache", "info"]) == 0
    assert str(tmp_path) in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("deleted 1 plans and 1 cost files")
    assert cache_content().plans == cache_content().cost_files == 0
