from dataclasses import replace

import pytest

from memplan.errors import InfeasibleBudget
from memplan.graph_capture.annotate import with_optimizer
from memplan.graph_capture.optimizer_state import OptimizerFootprint
from memplan.planner.advice import advice, pinned_by_kind
from memplan.planner.pipeline import make_plan
from tests.planner.test_max_batch import chain


def test_what_stays_is_named_with_its_kinds() -> None:
    graph = with_optimizer(chain(100), OptimizerFootprint(state_bytes=20, workspace_bytes=0))
    assert pinned_by_kind(graph) == {"optimizer_state": 20, "param": 10}
    with pytest.raises(
        InfeasibleBudget, match=r"optimizer state 20 B, parameters 10 B stay in any"
    ):
        make_plan(graph, 29, solver="greedy")


def test_an_update_that_needs_the_most_is_named() -> None:
    graph = with_optimizer(chain(100), OptimizerFootprint(state_bytes=20, workspace_bytes=900))
    with pytest.raises(InfeasibleBudget, match=r"update takes 900 B for itself: fused=True"):
        make_plan(graph, 800, solver="greedy")


def test_otherwise_it_is_the_batch() -> None:
    with pytest.raises(InfeasibleBudget, match="a smaller batch or a shorter sequence would help"):
        make_plan(chain(100), 200, solver="greedy")
    assert advice(replace(chain(1), ops=(), tensors=()), -1, 10) == ""
