from __future__ import annotations

import pytest

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.limits import below_limit, lower_limit
from memplan.planner.problem import Problem
from memplan.planner.solver import Status
from tests.graphs import chain


def test_a_chain_needs_an_op_with_its_input_output_and_what_is_given() -> None:
    # b2 reads a1 and g2 and writes g1, while x is there: 4 units. Nothing needs more.
    limit_bytes, op = lower_limit(chain(3, nbytes=10))
    assert limit_bytes == 40
    assert chain(3).ops[op].name == "b3"


def test_no_ops() -> None:
    graph = Graph(ops=(), tensors=(Tensor(name="x", nbytes=7, kind=Kind.INPUT),))
    assert lower_limit(graph) == (7, -1)


def two_ops(**second: object) -> Graph:
    """A pinned output of 5 bytes, and an op that needs 2 bytes and does not read it."""
    fields: dict[str, object] = {"name": "b", "inputs": (), "outputs": (1,)}
    return Graph(
        ops=(
            Op(name="a", inputs=(), outputs=(0,), in_order=True),
            Op(**(fields | second)),  # type: ignore[arg-type]
            Op(name="c", inputs=(1,), outputs=()),
        ),
        tensors=(
            Tensor(name="p", nbytes=5, kind=Kind.OUTPUT),
            Tensor(name="t", nbytes=2),
        ),
    )


def test_everything_pinned_is_there_at_the_end() -> None:
    # The last first run is of a (5 bytes with its own output) or of c (5 + 2 bytes).
    assert lower_limit(two_ops()) == (5, 0)
    assert lower_limit(two_ops(workspace_bytes=4)) == (6, 1)


@pytest.mark.parametrize(
    "second", [{"in_order": True}, {"phase": Phase.BACKWARD}, {"inputs": (0,)}]
)
def test_pinned_outputs_of_ops_that_must_run_before_count(second: dict[str, object]) -> None:
    if "phase" in second:
        graph = two_ops(workspace_bytes=4, **second)
        ops = (*graph.ops[:2], Op(name="c", inputs=(1,), outputs=(), phase=Phase.BACKWARD))
        graph = Graph(ops=ops, tensors=graph.tensors)
    else:
        graph = two_ops(workspace_bytes=4, **second)
    assert lower_limit(graph) == (11, 1)


def test_a_budget_below_the_limit_names_the_op() -> None:
    refusal = below_limit(Problem(graph=chain(3), budget_bytes=3))
    assert refusal is not None
    assert refusal.status is Status.INFEASIBLE
    assert refusal.minimum_bytes == 4
    assert "'b3'" in refusal.reason
    assert below_limit(Problem(graph=chain(3), budget_bytes=4)) is None
