"""Emitted graphs run the schedule: same bits as the unplanned step, planned peak = measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from memplan.codegen.backend import Backend
from memplan.codegen.check import check
from memplan.codegen.optimized_module import OptimizedModule
from memplan.graph_capture.annotate import with_costs, with_optimizer
from memplan.graph_capture.device import Device
from memplan.graph_capture.devices import find_device
from memplan.graph_capture.graph import Graph
from memplan.graph_capture.joint import JointGraph
from memplan.graph_capture.measured_profiler import MeasuredProfiler
from memplan.graph_capture.optimizer_state import optimizer_bytes
from memplan.planner.plan import Plan
from memplan.planner.problem import Problem
from memplan.planner.schedule import Schedule, schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.verify import verify
from tests.nets import CASES

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def keep_every(graph: Graph, n: int) -> Schedule:
    """Keep the outputs of every n-th forward op; make the rest again where it is read."""
    made = graph.producer
    kept = {
        t
        for t, op in enumerate(made)
        if op is None
        or graph.tensors[t].pinned
        or (op < graph.boundary and (not graph.ops[op].recomputable or op % n == 0))
    }
    sequence, there = list(range(graph.boundary)), set(kept)

    def run(op: int) -> None:
        for t in graph.ops[op].inputs:
            if t not in there:
                source = made[t]
                assert source is not None
                run(source)
        sequence.append(op)
        there.update(graph.ops[op].outputs)

    for op in range(graph.boundary, len(graph.ops)):
        run(op)
    return schedule_of(graph, sequence)


def planner(
    model: torch.nn.Module, schedule_for: Callable[[Graph], Schedule]
) -> Callable[[JointGraph], Plan]:
    device: Device = find_device("cpu")

    def plan(joint: JointGraph) -> Plan:
        graph = with_costs(joint.graph, joint.nodes, MeasuredProfiler(device=device))
        trained = [p for n, p in model.named_parameters() if n in joint.trained]
        graph = with_optimizer(graph, optimizer_bytes("adamw", trained))
        schedule = schedule_for(graph)
        peak_bytes = simulate(graph, schedule).peak_bytes
        verify(Problem(graph=graph, budget_bytes=peak_bytes), schedule)
        return Plan(
            graph=graph,
            schedule=schedule,
            budget_bytes=peak_bytes,
            status=Status.FEASIBLE,
            solver="test",
            proven_bound_ns=0,
        )

    return plan


@pytest.mark.parametrize("every", [2, 3, 1000])
@pytest.mark.parametrize("name", CASES)
def test_recomputing_changes_no_bit_and_takes_the_planned_memory(name: str, every: int) -> None:
    torch.manual_seed(0)
    model, args = CASES[name].make(), CASES[name].args()
    backend = Backend(planner(model, lambda graph: keep_every(graph, every)))
    module = OptimizedModule(model, lambda out: first(out), backend)
    step = module.plan_for(*args)
    assert step.plan.recomputed_ops > 0
    result = check(module, args, optimizer=torch.optim.AdamW, steps=3, timed_steps=0)
    assert result.identical
    unused = sum(p.nbytes for n, p in model.named_parameters() if n.startswith("unused"))
    assert result.measured_peak_bytes == pytest.approx(
        step.plan.planned_peak_bytes + unused, rel=0.01
    )


@pytest.mark.parametrize("name", ["dropouts", "convolutions", "attention"])
def test_one_step_is_checked_with_the_state_of_the_optimizer_in_place(name: str) -> None:
    torch.manual_seed(0)
    model, args = CASES[name].make(), CASES[name].args()
    module = OptimizedModule(
        model, lambda out: first(out), Backend(planner(model, lambda graph: keep_every(graph, 3)))
    )
    planned_bytes = module.plan_for(*args).plan.planned_peak_bytes
    before = [p.detach().clone() for p in model.parameters()]
    result = check(module, args, optimizer=torch.optim.AdamW, steps=1, timed_steps=0)
    assert result.identical
    assert result.measured_peak_bytes == pytest.approx(planned_bytes, rel=0.01)
    assert all(map(torch.equal, before, model.parameters()))


def first(output: object) -> torch.Tensor:
    value = output[0] if isinstance(output, tuple) else output
    assert isinstance(value, torch.Tensor)
    return value


def test_decisions_are_nodes() -> None:
    torch.manual_seed(0)
    case = CASES["dropouts"]
    model = case.make()
    backend = Backend(planner(model, lambda graph: keep_every(graph, 3)))
    module = OptimizedModule(model, None, backend)
    module.plan_for(*case.args())
    forward = [n for n in module.forward_graph.graph.nodes if n.op == "call_function"]
    backward = [n for n in module.backward_graph.graph.nodes if n.op == "call_function"]
    assert any(n.target is torch.ops.memplan.checkpoint.default for n in forward)
    assert any(n.name.endswith("_recompute_1") for n in backward)
    assert "run_with_rng_state" in module.backward_graph.code


def test_generated_code(golden: Callable[[str], None]) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1)
    )
    backend = Backend(planner(model, lambda graph: keep_every(graph, 1000)))
    module = OptimizedModule(model, torch.sum, backend)
    module.plan_for(torch.randn(2, 4))
    golden(f"{module.forward_graph.code.strip()}\n\n{module.backward_graph.code.strip()}\n")


def test_without_replay_of_the_generator_gradients_would_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check sees what it is for: draw again in place of replaying."""
    from memplan.codegen import emit as emit_module

    def draw_again(state: torch.Tensor, op: Callable[..., object], *args: object) -> object:
        return op(*args)

    monkeypatch.setattr(emit_module, "run_with_rng_state", draw_again)
    torch.manual_seed(0)
    case = CASES["dropouts"]
    model, args = case.make(), case.args()
    backend = Backend(planner(model, lambda graph: keep_every(graph, 1000)))
    module = OptimizedModule(model, None, backend)
    module.plan_for(*args)
    assert not check(module, args, steps=1, timed_steps=0).gradients_identical
