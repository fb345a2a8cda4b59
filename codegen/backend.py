"""The torch.compile backend that plans a joint graph and runs the planned graphs.

AOTAutograd traces forward and backward together and asks a partition function for two graphs;
ours asks for a plan and returns what `emit` makes of it. Dynamo's guards call it again for new
shapes, modes or frozen weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._inductor import config as inductor_config
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from memplan.codegen.emit import StepGraphs, emit
from memplan.codegen.inductor import Partition, compile_by_inductor
from memplan.codegen.known_plans import PlanFor, known_before
from memplan.codegen.partial_backward import boxed_backward, pass_absent_gradients
from memplan.codegen.second_derivatives import refuse_second_derivatives
from memplan.codegen.swap.places import SwapPlaces
from memplan.codegen.swap.store import stores_in_use
from memplan.codegen.tensors_of_tensors import refuse_tensors_of_tensors
from memplan.errors import CaptureError
from memplan.graph_capture.annotate import with_unused_state
from memplan.graph_capture.copies import COPIES
from memplan.graph_capture.fusion import fused_nodes
from memplan.graph_capture.graph import Kind
from memplan.graph_capture.joint import GivenInput, JointGraph, read_joint
from memplan.graph_capture.module_path import dotted_name
from memplan.graph_capture.native_kernels import KERNELS, traced_as_run
from memplan.graph_capture.random_layouts import RANDOM_KERNELS
from memplan.graph_capture.shared_casts import mark_regions
from memplan.planner.plan import Plan

Lowering: TypeAlias = Literal["eager", "inductor", "inductor-as-captured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One captured step with its plan and the graphs that run it."""

    joint: JointGraph
    plan: Plan
    graphs: StepGraphs

    def __repr__(self) -> str:
        return f"<PlannedStep: {self.plan!r}>"


UNREAD_INPUTS = "inputs_not_read"


class PlannedOnly(BaseException):
    """Raised in place of running a step while `Backend.plan_only` is set.

    It may also be raised by `Backend.plan_for`, to stop once a plan is made.

    Attributes:
        step: The planned step; None where gradients are off, so that there is nothing to plan.
    """

    def __init__(self, step: PlannedStep | None = None) -> None:
        super().__init__()
        self.step = step


class NewlyTied(CaptureError):
    """Raised where two tensors that a step was captured for have become one.

    Gradients would be summed in another order than plain PyTorch sums them.
    """

    def __init__(self) -> None:
        super().__init__(
            "two parameters were tied after the step was captured; call torch._dynamo.reset() so "
            "that it is captured again"
        )


class Backend:
    """Plans each joint graph that Dynamo captures.

    Attributes:
        plan_for: Makes the plan of a joint graph.
        steps: What was planned so far, in order.
        inputs: What the running call was given; the tracer leaves out what the step does not
            read, but it is on the device all the same.
        plan_only: While set, a compiled step raises `PlannedOnly` instead of running.
        swap: Where the steps move tensors to.
        moves: Whether they may.
        torch_type: Where the steps will run; steps of fake tensors are traced for it.
        lowering: What runs the planned graphs: `eager`, one operation after another, or
            `inductor`, which may choose other layouts than those captured, or may not.
    """

    def __init__(
        self,
        plan_for: PlanFor,
        swap: SwapPlaces | None = None,
        torch_type: str = "cpu",
        lowering: Lowering = "eager",
    ) -> None:
        self.plan_for = plan_for
        self.torch_type = torch_type
        self.lowering = lowering
        self.moves = swap is not None
        self.swap = swap or SwapPlaces()
        self.steps: list[PlannedStep] = []
        self.plan_only = False
        self.inputs: tuple[Any, ...] = ()

    def __call__(
        self, module: fx.GraphModule, example_inputs: list[torch.Tensor]
    ) -> Callable[..., Any]:
        """Compile one graph of Dynamo's.

        Raises:
            CaptureError: A parameter or input is a tensor that is made of others.
        """
        refuse_tensors_of_tensors(module)
        given = _given_inputs(module)
        unread_bytes = _unread_bytes(self.inputs, module)

        def partition(
            joint_module: fx.GraphModule,
            joint_inputs: object,
            *,
            num_fwd_outputs: int,
            **_options: object,
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            fused = fused_nodes(joint_module) if self.lowering != "eager" else frozenset()
            joint = read_joint(joint_module, num_fwd_outputs, given, fused=fused)
            if unread_bytes:
                extra = {UNREAD_INPUTS: (Kind.INPUT, unread_bytes)}
                joint = joint.with_graph(with_unused_state(joint.graph, extra))
            plan = self.plan_for(joint)
            joint = joint.with_graph(plan.graph)
            self.swap.prepare(plan)
            graphs = emit(joint, plan.schedule, plan.tiers)
            self.steps.append(PlannedStep(joint=joint, plan=plan, graphs=graphs))
            return graphs.forward, graphs.backward

        if self.lowering != "eager":
            return self._by_inductor(module, example_inputs, partition)
        compile_graph = aot_autograd(
            fw_compiler=lambda graph, inputs: self._compile(graph, inputs, self.steps[-1]),
            bw_compiler=lambda graph, _inputs: self._swapping(boxed_backward(graph)),
            inference_compiler=lambda graph, inputs: self._compile(graph, inputs, None),
            partition_fn=partition,
            keep_inference_input_mutations=True,
            decompositions=KERNELS | RANDOM_KERNELS | COPIES,
        )
        # So that the tracer keeps random draws that nothing reads: they move the generator.
        is_fake = any(isinstance(example, FakeTensor) for example in example_inputs)
        traced_for = self.torch_type if is_fake else "cpu"
        mark_regions(module, example_inputs)
        with inductor_config.patch(fallback_random=True), traced_as_run(traced_for):
            compiled: Callable[..., Any] = compile_graph(module, example_inputs)

        different = len(set(map(id, example_inputs)))

        def run(*args: Any) -> Any:
            if len(set(map(id, args))) < different:
                raise NewlyTied
            outputs = compiled(*args)
            pass_absent_gradients(outputs, args)
            refuse_second_derivatives(outputs, args)
            return outputs

        return run

    def _by_inductor(
        self, module: fx.GraphModule, example_inputs: list[torch.Tensor], partition: Partition
    ) -> Callable[..., Any]:
        before = len(self.steps)
        compiled = compile_by_inductor(
            module,
            example_inputs,
            partition,
            swap=self.swap if self.moves else None,
            own_layouts=self.lowering == "inductor",
        )
        step = self.steps[-1] if len(self.steps) > before else None

        def run(*args: Any) -> Any:
            if self.plan_only:
                raise PlannedOnly(step)
            outputs = compiled(*args)
            refuse_second_derivatives(outputs, args)
            return outputs

        return run

    def fresh(self) -> Backend:
        """Return a backend that has captured nothing yet, but knows the plans of this one."""
        known = {step.joint.digest: step.plan for step in self.steps}
        return Backend(
            known_before(known, self.plan_for),
            self.swap if self.moves else None,
            self.torch_type,
            self.lowering,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plans; graphs are captured again where they are needed."""
        swap = self.swap if self.moves else None
        return Backend, (self.fresh().plan_for, swap, self.torch_type, self.lowering)

    def _swapping(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Return what runs a graph with the stores of its plan, if it has any."""
        if not self.swap.stores:
            return run

        def run_with_stores(args: list[Any]) -> Any:
            with stores_in_use(self.swap.stores):
                return run(args)

        run_with_stores._boxed_call = True  # type: ignore[attr-defined]
        return run_with_stores

    def _compile(
        self, graph: fx.GraphModule, inputs: Sequence[torch.Tensor], step: PlannedStep | None
    ) -> Callable[..., Any]:
        """Return what runs a forward graph; `step` is the step that it begins, if it does."""
        run = self._swapping(boxed_nop(graph, list(inputs)))

        def run_unless_planning(args: list[Any]) -> Any:
            if self.plan_only:
                args.clear()
                raise PlannedOnly(step)
            return run(args)

        run_unless_planning._boxed_call = True  # type: ignore[attr-defined]
        return run_unless_planning


def _unread_bytes(inputs: tuple[Any, ...], module: fx.GraphModule) -> int:
    """Return the bytes of the caller's tensors that the tracer left out of the graph."""
    read: set[int] = set()
    for node in module.graph.find_nodes(op="placeholder"):
        example = node.meta["grapharg"].example if "grapharg" in node.meta else None
        if isinstance(example, torch.Tensor):
            read.add(example.untyped_storage()._cdata)
    given = {
        tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes()
        for tensor in pytree.tree_leaves(inputs)
        if isinstance(tensor, torch.Tensor)
    }
    return sum(nbytes for storage, nbytes in given.items() if storage not in read)


def _given_inputs(module: fx.GraphModule) -> list[GivenInput]:
    """Name what the graph is given: parameters and buffers by their place in the model."""
    given = []
    for node in module.graph.find_nodes(op="placeholder"):
        source = node.meta["grapharg"].source.name if "grapharg" in node.meta else node.name
        if "_parameters[" in source:
            kind = Kind.PARAM
        else:
            kind = Kind.BUFFER if "_buffers[" in source else Kind.INPUT
        given.append(GivenInput(name=dotted_name(source), kind=kind))
    return given
