import operator
from collections.abc import Callable

import pytest
import torch

from memplan.errors import ProfileError
from memplan.graph_capture.op_call import OpCall, TensorSpec, op_call_of
from tests.joint_graphs import JointGraph, conv_net
from tests.small_specs import spec

ATEN = torch.ops.aten


def traced(function: Callable[..., object], *args: torch.Tensor) -> dict[str, torch.fx.Node]:
    graph = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(*args).graph
    return {node.name: node for node in graph.nodes}


def test_extent_of_a_transposed_slice_is_first_to_last_element() -> None:
    # Rows 0 and 2 of a 4 x 3 matrix: elements 0-2 and 6-8, so 9 from first to last.
    assert TensorSpec.of(torch.empty(4, 3)[::2][:2]).extent == 9
    assert TensorSpec.of(torch.empty(4, 0)).extent == 0
    assert TensorSpec.of(torch.empty(())).extent == 1


def test_an_expanded_dimension_is_read_once() -> None:
    assert TensorSpec.of(torch.empty(5, 1).expand(5, 100)).touched_bytes == 5 * 4
    assert TensorSpec.of(torch.empty(0, 1).expand(0, 100)).touched_bytes == 0


def test_a_node_becomes_its_target_and_the_specs_of_its_arguments() -> None:
    nodes = traced(lambda a, b: torch.cat([a, b.t()], 1), torch.empty(2, 3), torch.empty(4, 2))
    call = op_call_of(nodes["cat"])
    transposed = TensorSpec((2, 4), (1, 2), torch.float32)
    assert call == OpCall(ATEN.cat.default, ((spec(2, 3), transposed), 1), (), (spec(2, 7),))
    assert call.inputs == (spec(2, 3), transposed)
    assert call.name == "aten.cat.default"


def test_a_placeholder_is_no_call() -> None:
    nodes = traced(lambda a: a + 1, torch.empty(2))
    placeholder = next(node for node in nodes.values() if node.op == "placeholder")
    with pytest.raises(ProfileError, match="is a placeholder"):
        op_call_of(placeholder)


def test_a_node_without_shapes_is_refused_by_name() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    with pytest.raises(ProfileError, match=r"'x'.*fake tensors"):
        op_call_of(graph.call_function(ATEN.relu.default, (x,)))


def test_key_tells_apart_what_costs_differently_and_nothing_else() -> None:
    base = OpCall(ATEN.sum.dim_IntList, (spec(4, 4), (0,), True))
    different = [
        OpCall(ATEN.mean.dim, base.args),
        OpCall(base.target, (spec(4, 5), (0,), True)),
        OpCall(base.target, (spec(4, 4, dtype=torch.float64), (0,), True)),
        OpCall(base.target, (TensorSpec((4, 4), (1, 4), torch.float32), (0,), True)),
        OpCall(base.target, (spec(4, 4), (1,), True)),
        OpCall(base.target, base.args, (("dtype", torch.float32),)),
    ]
    keys = {call.key for call in [base, *different]}
    assert len(keys) == 1 + len(different)
    assert OpCall(base.target, base.args, outputs=(spec(1, 4),)).key == base.key


def test_key_is_the_same_in_every_process() -> None:
    expected = (
        "aten.sum.dim_IntList(torch.float32[4, 2]:[2, 1]@cpu, (0), True){dtype=torch.float32}"
    )
    named = (("dtype", torch.float32),)
    assert OpCall(ATEN.sum.dim_IntList, (spec(4, 2), (0,), True), named).key == expected


def test_the_call_inside_a_wrapper_is_found() -> None:
    wrapper = torch._prims.rng_prims.run_and_save_rng_state
    call = OpCall(wrapper, (ATEN.native_dropout.default, spec(8), 0.5, True))
    assert call.name == "run_and_save_rng_state"
    assert call.inner == OpCall(ATEN.native_dropout.default, (spec(8), 0.5, True))
    assert call.inner.inner is call.inner


def test_every_node_of_a_joint_graph_can_be_described() -> None:
    joint = JointGraph(conv_net())
    joint.compiled(torch.randn(2, 3, 16, 16), torch.tensor([1, 2])).backward()
    computed = [node for node in joint.nodes if node.target is not operator.getitem]
    assert [call.target for call in joint.calls()] == [node.target for node in computed]
    assert all(call.outputs for call in joint.calls())
