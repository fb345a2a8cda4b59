from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.plans.checkpoints import blocks_of, checkpointed
from benchmarks.plans.rows import Row, in_own_process, least, plan
from benchmarks.plans.steps import STEPS, activations_only, captured
from benchmarks.plans.tables import mean_extra
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from tests.graphs import chain
from tests.small_graphs import hourglass


def test_a_row_by_hand() -> None:
    # `grow` runs again: 10 ns beside 15, and no schedule does without.
    row = plan(hourglass(), 104, None, "auto", 5.0)
    assert (row["status"], row["budget"]) == ("optimal", 104 / 153)
    assert (row["extra"], row["proven"], row["gap"]) == (25 / 15 - 1, 25 / 15 - 1, 0.0)


def test_a_budget_below_the_limit_has_no_plan() -> None:
    row = plan(hourglass(), 103, None, "auto", 5.0)
    assert row["status"] == "infeasible"
    assert row["minimum_bytes"] == 104
    assert "extra" not in row


def test_the_first_plan_has_a_time() -> None:
    row = plan(hourglass(), 104, None, "auto", 5.0)
    assert 0 < row["first_seconds"] <= row["seconds"]


def test_a_row_of_its_own_process_is_the_same() -> None:
    row = in_own_process("plan", hourglass(), 104, None, "auto", 5.0, clock="cpu")
    assert (row["extra"], row["peak_bytes"], row["clock"]) == (25 / 15 - 1, 104, "cpu")
    assert row["solver_bytes"] >= 0


def test_the_least_budget_by_hand() -> None:
    assert least(hourglass(), 5.0) == {"least_bytes": 104, "limit_bytes": 104}


def test_a_checkpoint_around_each_of_two_blocks() -> None:
    # h.0 is f1, f2 and h.1 is f3, f4. The backward phase reads a3 but not a4: for b4, h.1 runs
    # again up to f3. It reads a1 and a2: for b3, h.0 runs again as a whole.
    ops = [
        replace(op, module=f"h.{(i - 1) // 2}.{op.name}") if 1 <= i <= 4 else op
        for i, op in enumerate(chain(4).ops, start=1)
    ]
    graph = replace(chain(4), ops=tuple(ops))
    blocks = blocks_of(graph, r"h\.\d+")
    assert blocks == {"h.0": [0, 1], "h.1": [2, 3]}
    sequence = checkpointed(graph, list(blocks.values()))
    assert sequence == (0, 1, 2, 3, 4, 2, 5, 0, 1, 6, 7, 8)
    assert simulate(graph, schedule_of(graph, sequence)).time_ns == 9 + 3


def test_activations_alone() -> None:
    graph = activations_only(chain(4))
    assert graph.given_bytes == 0
    assert sum(t.nbytes for t in graph.tensors) == 8


def test_the_mean_leaves_out_what_has_no_plan() -> None:
    rows: list[Row] = [
        {"asked": "50", "extra": 0.1},
        {"asked": "50", "extra": 0.3},
        {"asked": "50", "status": "infeasible"},
        {"asked": "25", "extra": 0.9},
    ]
    mean, count = mean_extra(rows, "50")
    assert mean == pytest.approx(0.2)
    assert count == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_h14", "llama3_8b", "resnet152"])
def test_a_step_of_two_layers_is_captured_without_memory(name: str) -> None:
    pytest.importorskip("transformers")
    sizes = {"layers": 50 if name == "resnet152" else 2}
    graph = captured(replace(STEPS[name], sizes=sizes))
    blocks = blocks_of(graph, STEPS[name].blocks)
    assert len(blocks) == (16 if name == "resnet152" else 2)
