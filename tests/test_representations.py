"""What a prompt shows of large objects is one line with the figures that matter."""

from __future__ import annotations

import copy
import pickle

import torch
from torch import nn

import memplan
from memplan.graph_capture.graph import Graph
from memplan.planner.plan import Plan
from memplan.planner.problem import Limits, Problem
from memplan.solvers.keep_all import KeepAll
from tests.graphs import chain
from tests.steps import planned


def test_a_graph_says_what_it_holds() -> None:
    graph = chain(4)
    text = repr(graph)
    assert f"{len(graph.ops)} ops, {len(graph.tensors)} tensors" in text
    assert f"{graph.given_bytes:,} bytes" in text


def test_a_plan_says_what_it_promises() -> None:
    plan = memplan.solve(chain(4), budget="100%", solver="keep-all")
    text = repr(plan)
    assert f"peak {plan.planned_peak_bytes:,} of {plan.budget_bytes:,} bytes" in text
    assert f"{plan.status.value} by keep-all" in text


def test_no_representation_grows_with_the_graph() -> None:
    graph = chain(300)
    plan = memplan.solve(graph, budget="100%", solver="keep-all")
    problem = Problem(graph=graph, budget_bytes=plan.budget_bytes)
    solution = KeepAll().solve(problem, Limits())
    for large in (graph, plan, plan.timeline, problem, solution):
        assert len(repr(large)) < 300, type(large)
        assert "\n" not in repr(large)


def test_what_was_captured_is_shown_in_one_line() -> None:
    step = planned(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), [torch.randn(2, 4)]).steps[0]
    for large in (step, step.joint, step.graphs):
        assert len(repr(large)) < 400, type(large)
        assert "\n" not in repr(large)


def test_graphs_and_plans_are_pickled_and_copied() -> None:
    plan = memplan.solve(chain(4), budget="100%", solver="keep-all")
    for again in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert isinstance(again, Plan)
        assert again == plan
        assert isinstance(again.graph, Graph)
        assert again.graph == plan.graph
