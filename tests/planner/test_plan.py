from __future__ import annotations

import json
import os
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from memplan.errors import PlanMismatch, UsageError
from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.plan import SCHEMA, Plan
from memplan.planner.schedule import Compute, Drop, schedule_of
from memplan.planner.solver import Status
from tests.small_graphs import HOURGLASS_RECOMPUTED, chain, hourglass, two_outputs


def hourglass_plan() -> Plan:
    graph = hourglass()
    return Plan(
        graph=graph,
        schedule=schedule_of(graph, HOURGLASS_RECOMPUTED),
        budget_bytes=120,
        status=Status.FEASIBLE,
        solver="by hand",
        proven_bound_ns=20,
        model_bound_ns=18,
        limit_bytes=104,
        solve_seconds=1.25,
        provenance=MappingProxyType({"torch": "2", "device": "cpu"}),
        notes=("One note.",),
    )


def test_figures_of_the_hourglass() -> None:
    plan = hourglass_plan()
    assert (plan.unplanned_peak_bytes, plan.planned_peak_bytes) == (153, 104)
    assert (plan.unplanned_time_ns, plan.planned_time_ns) == (15, 25)
    assert plan.recomputed_ops == 1
    assert plan.overhead == pytest.approx(10 / 15)
    assert plan.proven_bound == pytest.approx(5 / 15)
    assert plan.model_bound == pytest.approx(3 / 15)
    assert plan.gap == pytest.approx((25 - 20) / 20)


def test_without_a_model_or_costs_there_is_nothing_to_divide() -> None:
    graph = chain()
    free = replace(graph, ops=tuple(replace(op, time_ns=0) for op in graph.ops))
    plan = replace(
        hourglass_plan(),
        graph=free,
        schedule=schedule_of(free, range(3)),
        proven_bound_ns=0,
        model_bound_ns=None,
    )
    assert (plan.overhead, plan.proven_bound, plan.model_bound, plan.gap) == (0, 0, None, 0)


def test_bytes_at_the_peak_by_kind() -> None:
    # at finish: big 100 (activation); x, loss, seed and grad one byte each
    by_kind = hourglass_plan().bytes_at_peak
    assert list(by_kind) == ["activation", "gradient", "input", "output", "temporary"]
    assert by_kind["activation"] == 100
    assert sum(by_kind.values()) == 104


def test_a_tensor_that_is_there_twice_counts_twice() -> None:
    again = (Compute(0), Compute(1), Drop(1), Compute(0), Compute(2))
    plan = replace(hourglass_plan(), graph=two_outputs(), schedule=again)
    assert dict(plan.bytes_at_peak) == {"activation": 51, "input": 1}  # 2*q + p + s, and x


def test_the_update_has_its_own_line() -> None:
    graph = Graph(
        tensors=(
            Tensor(name="w", nbytes=4, kind=Kind.PARAM),
            Tensor(name="m", nbytes=8, kind=Kind.OPTIMIZER_STATE),
            Tensor(name="step", nbytes=16, kind=Kind.TEMPORARY),
        ),
        ops=(
            Op(
                name="adam",
                inputs=(0, 1),
                outputs=(2,),
                phase=Phase.UPDATE,
                workspace_bytes=32,
            ),
        ),
    )
    plan = replace(hourglass_plan(), graph=graph, schedule=schedule_of(graph, (0,)))
    assert dict(plan.bytes_at_peak) == {"update": 48, "optimizer_state": 8, "param": 4}


def test_workspace_has_its_own_line_and_an_empty_plan_holds_what_is_given() -> None:
    graph = chain()
    graph = replace(graph, ops=(replace(graph.ops[0], workspace_bytes=9), *graph.ops[1:]))
    plan = replace(hourglass_plan(), graph=graph, schedule=schedule_of(graph, range(3)))
    assert dict(plan.bytes_at_peak) == {"workspace": 9, "activation": 1, "input": 1}
    assert dict(replace(plan, schedule=()).bytes_at_peak) == {"input": 1}


def test_plans_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        hourglass_plan().budget_bytes = 1  # type: ignore[misc]


def test_json_both_ways() -> None:
    plan = hourglass_plan()
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.solve_seconds == plan.solve_seconds
    assert again.to_json() == plan.to_json()


def test_only_the_timing_varies() -> None:
    plan, slower = hourglass_plan(), replace(hourglass_plan(), solve_seconds=99.0)
    assert plan == slower
    assert plan.to_json() != slower.to_json()
    assert plan.to_json(timing=False) == slower.to_json(timing=False)
    assert Plan.from_json(plan.to_json(timing=False)) == plan


def test_the_file_has_one_key_a_line_with_the_figures_first() -> None:
    lines = hourglass_plan().to_json().splitlines()
    assert lines[:4] == [
        "{",
        f'"schema": "{SCHEMA}",',
        '"budget_bytes": 120,',
        '"unplanned_peak_bytes": 153,',
    ]
    assert '"planned_peak_bytes": 104,' in lines
    assert lines[-2].startswith('"graph": ')


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    hourglass_plan().save(path)
    assert Plan.load(path) == hourglass_plan()
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"], "no temporary file stays"


def test_a_failed_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        hourglass_plan().save(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"plan\.json: No such file"):
        Plan.load(tmp_path / "plan.json")
    with pytest.raises(UsageError, match="No such file"):
        hourglass_plan().save(tmp_path / "nowhere" / "plan.json")
    picture = tmp_path / "picture.json"
    picture.write_bytes(b"\x89PNG\xff")
    with pytest.raises(PlanMismatch, match=r"picture\.json: the plan is not text"):
        Plan.load(picture)


def changed(**changes: Any) -> str:
    return json.dumps(json.loads(hourglass_plan().to_json()) | changes)


def without(key: str) -> str:
    content = json.loads(hourglass_plan().to_json())
    del content[key]
    return json.dumps(content)


STEPS = json.loads(hourglass_plan().to_json())["schedule"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        (hourglass_plan().to_json()[:-40], "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "schema None"),
        (changed(schema="memplan.plan/9"), f"schema 'memplan.plan/9', .* reads '{SCHEMA}'"),
        (without("graph"), "graph"),
        (without("schedule"), "damaged"),
        (without("provenance"), "damaged"),
        (changed(graph={}), "graph"),
        (changed(schedule=[["swap", 1]]), "is no step"),
        (changed(schedule=[["drop", 1.0]]), "is no step"),
        (changed(schedule=[3]), "damaged"),
        (changed(schedule=STEPS[:-3]), "never ran finish"),
        (changed(schedule=[["compute", 99], *STEPS]), "there is no op 99"),
        (changed(schedule=[STEPS[1], *STEPS]), "not on the device"),
        (changed(budget_bytes=103), "1 over the budget"),
        (changed(budget_bytes="120"), "budget_bytes is not a whole number"),
        (changed(status="infeasible"), "cannot be infeasible"),
        (changed(status="perfect"), "damaged"),
        (changed(planned_peak_bytes=1), "says planned_peak_bytes 1, its schedule has 104"),
        (changed(overhead=0.0), "says overhead 0.0"),
        (without("gap"), "says gap None"),
        (changed(timing=[]), "damaged"),
    ],
)
def test_a_plan_that_does_not_hold_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(PlanMismatch, match=message) as caught:
        Plan.from_json(text)
    assert "\n" not in str(caught.value)
    assert "make the plan again" in str(caught.value)
