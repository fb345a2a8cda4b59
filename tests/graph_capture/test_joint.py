"""What the reading of a joint graph says about storages, phases, random draws and mutations."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memplan.codegen.backend import Backend, PlannedOnly
from memplan.codegen.optimized_module import OptimizedModule, run_until_planned
from memplan.errors import PlanMismatch
from memplan.graph_capture.graph import Graph, Kind, Op, Phase
from memplan.graph_capture.joint import BOUNDARY, JointGraph
from memplan.graph_capture.module_path import dotted_name
from memplan.planner.plan import Plan
from tests.nets import CASES


def read(model: nn.Module, *args: torch.Tensor) -> JointGraph:
    found: list[JointGraph] = []

    def stop(joint: JointGraph) -> Plan:
        found.append(joint)
        raise PlannedOnly

    torch._dynamo.reset()
    run_until_planned(OptimizedModule(model, None, Backend(stop)), args, {})
    return found[0]


def case(name: str) -> JointGraph:
    torch.manual_seed(0)
    return read(CASES[name].make(), *CASES[name].args())


def ops_of(graph: Graph, target: str) -> list[Op]:
    return [op for op in graph.ops if op.target.startswith(target)]


def test_views_are_no_ops_and_share_a_storage() -> None:
    graph = case("attention").graph
    assert not ops_of(graph, "aten.view")
    assert not ops_of(graph, "aten.split")
    # Three applications of one linear layer of 16 -> 48 for 2 x 8 positions, float32.
    projections = [op for op in ops_of(graph, "aten.addmm") if op.phase is Phase.FORWARD]
    assert [graph.tensors[op.outputs[0]].nbytes for op in projections] == [2 * 8 * 48 * 4] * 3


def test_tied_weights_are_one_parameter_with_one_gradient() -> None:
    graph = case("attention").graph
    names = [t.name for t in graph.tensors if t.kind is Kind.PARAM]
    assert sorted(names) == sorted(set(names))
    assert len([n for n in names if n in ("embed.weight", "head.weight")]) == 1
    gradients = [t for t in graph.tensors if t.kind is Kind.GRADIENT]
    assert len(gradients) == len(names)


def test_random_ops_read_the_state_they_start_from() -> None:
    joint = case("dropouts")
    graph = joint.graph
    dropouts = [
        i for i, op in enumerate(graph.ops) if op.target.startswith("aten.native_dropout.")
    ]
    assert len(dropouts) == 4
    for i in dropouts:
        state = joint.random_state[i]
        assert state in graph.ops[i].inputs
        assert graph.tensors[state].nbytes == torch.get_rng_state().nbytes
        maker = graph.producer[state]
        assert maker == i - 1
        assert not graph.ops[maker].recomputable
    # A draw that nothing reads moves the generator, so it stays.
    assert len(ops_of(graph, "aten.rand.")) == 4


def test_an_updated_buffer_pins_its_readers_down() -> None:
    graph = case("read-then-updated").graph
    buffer = next(i for i, t in enumerate(graph.tensors) if t.name == "count")
    readers = [graph.ops[i] for i in graph.consumers[buffer]]
    assert readers
    assert not any(op.recomputable for op in readers)
    update = ops_of(graph, "aten.copy_")
    assert len(update) == 1
    assert update[0].phase is Phase.FORWARD


def test_batch_norm_may_run_again_but_updates_its_statistics_once() -> None:
    graph = case("convolutions").graph
    norms = ops_of(graph, "aten._native_batch_norm_legit_functional")
    assert len(norms) == 3
    assert all(op.recomputable for op in norms)
    assert len(ops_of(graph, "aten.copy_")) == 9
    assert not any(op.recomputable for op in ops_of(graph, "aten.copy_"))


def test_what_a_custom_backward_calls_belongs_to_the_backward_pass() -> None:
    graph = case("custom-backward").graph
    assert graph.ops[graph.boundary].target == BOUNDARY
    tangent = graph.ops[graph.boundary].outputs[0]
    assert all(i > graph.boundary for i in graph.consumers[tangent])
    assert graph.consumers[tangent]


def test_frozen_parameters_get_no_gradient() -> None:
    joint = case("frozen")
    assert "layers.0.weight" not in joint.trained
    assert {"layers.1.weight", "layers.2.bias"} <= joint.trained
    assert "unused.weight" not in {t.name for t in joint.graph.tensors}


def test_the_modules_of_ops_are_named() -> None:
    modules = {op.module for op in case("convolutions").graph.ops}
    assert {"stages.0.0", "stages.2.1", "head"} <= modules


def test_the_hash_depends_on_the_model_and_its_inputs_only() -> None:
    model = nn.Linear(4, 4)
    joint = read(model, torch.randn(2, 4))
    again = read(nn.Linear(4, 4), torch.randn(2, 4))
    other = read(model, torch.randn(3, 4))
    assert joint.digest == again.digest
    assert joint.graph == again.graph
    assert joint.digest != other.digest
    with pytest.raises(PlanMismatch, match="other input shapes"):
        joint.with_graph(other.graph)


def test_the_graph_survives_json() -> None:
    graph = case("convolutions").graph
    assert Graph.from_json(graph.to_json()) == graph


def test_dotted_name() -> None:
    assert dotted_name("L['model']._modules['h'].c._buffers['mean']") == "h.c.mean"
