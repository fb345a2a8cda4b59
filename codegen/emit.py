"""Turns a schedule into a forward and a backward FX graph.

Every decision is a node: `memplan.checkpoint(x)` where a tensor is kept from forward to backward,
a second run of an op as a node named `<op>_recompute_<k>`, and where a tensor is moved
`memplan.swap_out(x, tier)`, `release(handle)`, `prefetch(handle)` and `wait(pending)`. Generated
code frees a value after its last use, a swapped one with its release, and a schedule in normal
form drops a tensor after its last read, so memory is freed exactly where the schedule says. Views
are made again from their storage wherever they are read.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state

from memplan.codegen.emit_swaps import (
    Crossing,
    crossing,
    fake_handle,
    fake_mode_of,
    swap_out_node,
    wait_node,
)
from memplan.codegen.operators import checkpoint, prefetch, release
from memplan.errors import InvalidSchedule
from memplan.graph_capture.aliasing import aliased_argument
from memplan.graph_capture.fx_nodes import tensor_value
from memplan.graph_capture.joint import BOUNDARY, JointGraph
from memplan.graph_capture.phases import is_tangent
from memplan.graph_capture.running_statistics import statistics_read
from memplan.planner.schedule import (
    Compute,
    Drop,
    Prefetch,
    Schedule,
    Step,
    SwapOut,
    sequence_of,
    with_drops,
)
from memplan.planner.tiers import Tier

# A key of AOTAutograd's.
_UNCHECKED = "saved_tensor_with_no_vc_check"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraphs:
    """The two FX graphs of a planned training step.

    Attributes:
        forward: Takes the primals; returns the outputs of the model, then the saved tensors.
        backward: Takes the saved tensors, then the tangents; returns the gradients.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule

    def __repr__(self) -> str:
        forward, backward = (len(m.graph.nodes) for m in (self.forward, self.backward))
        return f"<StepGraphs: {forward:,} forward and {backward:,} backward nodes>"


def emit(joint: JointGraph, schedule: Schedule, tiers: Sequence[Tier] = ()) -> StepGraphs:
    """Return graphs that run the ops of `schedule` in its order.

    Args:
        joint: The captured graph; it is not changed.
        schedule: In normal form: each tensor is dropped right after its last read.
        tiers: What the schedule's tiers are called.

    Raises:
        InvalidSchedule: The schedule is not in normal form, so that generated code would free
            earlier than it says.
    """
    if schedule != with_drops(joint.graph, schedule):
        raise InvalidSchedule(0, "tensors are not dropped right after their last read")
    schedule = tuple(step for step in schedule if not _moves_no_node(joint, step))
    boundary = next(
        i
        for i, step in enumerate(schedule)
        if isinstance(step, Compute) and joint.graph.ops[step.op].target == BOUNDARY
    )
    runs = Counter(sequence_of(schedule))
    repeated = frozenset(op for op, count in runs.items() if count > 1)
    names = tuple(tier.name for tier in tiers)
    forward, backward = _Pass(joint, repeated, names), _Pass(joint, repeated, names)
    placeholders = joint.module.graph.find_nodes(op="placeholder")
    for node in placeholders:
        if not is_tangent(node):
            forward.take(joint.storage_of.get(node), node)
    forward.run(schedule[:boundary])
    crossed = crossing(schedule, boundary)
    saved = _saved(joint, schedule[boundary:], crossed)
    unchecked = _updated_meanwhile(joint, schedule[boundary:], saved)
    for tensor in unchecked:
        forward.held(tensor).meta[_UNCHECKED] = True
    # AOTAutograd wants those whose version it does not check last.
    first, last = ([t for t in saved if (t in unchecked) is late] for late in (False, True))
    for tensor in first:
        backward.take(tensor, forward.held(tensor))
    for tensor in crossed.handles:
        backward.handles[tensor] = backward.take(None, forward.handles[tensor])
    for tensor in crossed.pending:
        backward.pending[tensor] = backward.take(None, forward.pending[tensor])
    for tensor in last:
        backward.take(tensor, forward.held(tensor))
    backward.writing.update(crossed.writing)
    for node in placeholders:
        if is_tangent(node):
            backward.take(joint.storage_of.get(node), node)
    backward.times_run.update(forward.times_run)
    backward.run(schedule[boundary + 1 :])
    kept = [forward.save(tensor) for tensor in first]
    kept += [forward.handles[tensor] for tensor in crossed.handles]
    kept += [forward.pending[tensor] for tensor in crossed.pending]
    kept += [forward.save(tensor) for tensor in last]
    return _assemble(joint, forward, backward, kept)


def _moves_no_node(joint: JointGraph, step: Step) -> bool:
    """Whether a transfer is about the state of a generator, which may not be there at all."""
    if isinstance(step, (Compute, Drop)):
        return False
    return joint.owner[step.tensor] is None


def _saved(joint: JointGraph, steps: Schedule, crossed: Crossing) -> list[int]:
    """Return what the backward pass reads before it makes it, in the order of first reads."""
    made: set[int] = set(crossed.pending)
    saved: dict[int, None] = {}
    for step in steps:
        if isinstance(step, Compute):
            op = joint.graph.ops[step.op]
            if joint.nodes[step.op] is not None:
                saved.update(dict.fromkeys(t for t in op.inputs if t not in made))
            made.update(op.outputs)
        elif isinstance(step, Prefetch):
            made.add(step.tensor)
        elif isinstance(step, SwapOut) and step.tensor not in made:
            saved[step.tensor] = None
    for leaf in _leaves(joint)[joint.num_forward_outputs :]:
        tensor = joint.storage_of.get(leaf) if isinstance(leaf, fx.Node) else None
        if tensor is not None and tensor not in made:
            saved[tensor] = None
    owners = joint.owner
    return [t for t in saved if (o := owners[t]) is None or o.op != "get_attr"]


def _updated_meanwhile(joint: JointGraph, steps: Schedule, saved: list[int]) -> frozenset[int]:
    """Return the saved tensors that another forward pass may update before the backward pass.

    Plain PyTorch allows it for running statistics, whose values the backward pass does not use.
    Only those that the step is given are left unchecked: autograd holds on to such tensors after
    their last use.
    """
    as_statistics: set[int] = set()
    otherwise: set[int] = set()
    for step in steps:
        if not isinstance(step, Compute) or (node := joint.nodes[step.op]) is None:
            continue
        found = {joint.storage_of[n] for n in statistics_read(node)}
        as_statistics |= found
        otherwise |= set(joint.graph.ops[step.op].inputs) - found
    given = {t for t in saved if joint.graph.producer[t] is None}
    return frozenset(given & as_statistics - otherwise)


def _leaves(joint: JointGraph) -> tuple[object, ...]:
    leaves = joint.module.graph.output_node().args[0]
    assert isinstance(leaves, (tuple, list))
    return tuple(leaves)


def _assemble(
    joint: JointGraph, forward: _Pass, backward: _Pass, kept: list[fx.Node]
) -> StepGraphs:
    leaves, split = _leaves(joint), joint.num_forward_outputs
    backward.finish([_value_or_constant(backward, leaf) for leaf in leaves[split:]])
    returned = [_value_or_constant(forward, leaf) for leaf in leaves[:split]]
    forward.finish([*returned, *kept])
    return StepGraphs(
        forward=fx.GraphModule(joint.module, forward.graph, "MemplanForward"),
        backward=fx.GraphModule(joint.module, backward.graph, "MemplanBackward"),
    )


def _value_or_constant(part: _Pass, leaf: object) -> object:
    return part.value(leaf) if isinstance(leaf, fx.Node) else leaf


class _Pass:
    """One of the two graphs while it is built.

    Attributes:
        owner: For each tensor on the device, the node that holds it.
        views: For each of them, the nodes made from it, by the joint node they stand for.
        constants: Nodes of constants and sub-modules that belong to the graph module.
        inside: What the op that is being added computes itself, by the joint node.
        times_run: How often each op has run so far, the forward pass included.
        handles: For each tensor that was swapped out, the node of its copy.
        pending: For each tensor on its way back, the node of its read.
        writing: Tensors whose write is not waited for yet.
    """

    def __init__(
        self, joint: JointGraph, repeated: frozenset[int], tiers: tuple[str, ...]
    ) -> None:
        self.joint = joint
        self.tiers = tiers
        self.handles: dict[int, fx.Node] = {}
        self.pending: dict[int, fx.Node] = {}
        self.writing: set[int] = set()
        self.repeated = repeated
        self.graph = fx.Graph()
        self.owner: dict[int, fx.Node] = {}
        self.views: defaultdict[int, dict[fx.Node, fx.Node]] = defaultdict(dict)
        self.constants: dict[fx.Node, fx.Node] = {}
        self.inside: dict[fx.Node, fx.Node] = {}
        self.times_run: Counter[int] = Counter()

    def take(self, tensor: int | None, source: fx.Node) -> fx.Node:
        """Add a placeholder named after `source`, which holds `tensor` if that is one."""
        node = self.graph.placeholder(source.name)
        node.meta = dict(source.meta)
        if tensor is not None:
            self.owner[tensor] = node
        return node

    def run(self, steps: Schedule) -> None:
        """Add the nodes of all steps."""
        for step in steps:
            if isinstance(step, Compute):
                self.compute(step.op)
            elif isinstance(step, Drop):
                self.drop(step.tensor)
            elif isinstance(step, SwapOut):
                self.swap_out(step)
            elif isinstance(step, Prefetch):
                self.prefetch(step.tensor)
            else:
                self.wait(step.tensor)

    def compute(self, op_index: int) -> None:
        """Add the node of one op and of its outputs; the boundary and the like have none."""
        node = self.joint.nodes[op_index]
        if node is None:
            return
        self.inside.clear()
        again = self.times_run[op_index]
        self.times_run[op_index] += 1
        made = self._call(op_index, node, again)
        made.meta = dict(node.meta)
        if again:
            made.meta["memplan_recompute"] = again
        self._bind_outputs(node, made, again)

    def drop(self, tensor: int) -> None:
        """Forget an instance, so that no later node can read it."""
        self.owner.pop(tensor, None)
        self.views.pop(tensor, None)

    def swap_out(self, step: SwapOut) -> None:
        """Add the start of a write."""
        made = swap_out_node(self.graph, self.held(step.tensor), self.tiers[step.tier])
        made.meta["val"] = fake_handle(self.joint)
        self.handles[step.tensor] = made
        self.writing.add(step.tensor)

    def prefetch(self, tensor: int) -> None:
        """Add the start of a read."""
        handle = self.handles[tensor]
        made = self.graph.call_function(prefetch, (handle,))
        made._rename(f"{self.joint.graph.tensors[tensor].name}_prefetch")
        made.meta["val"] = fake_handle(self.joint)
        self.pending[tensor] = made

    def wait(self, tensor: int) -> None:
        """Add the end of a write, after which the tensor is gone, or of a read."""
        if tensor in self.writing:
            self.writing.remove(tensor)
            self.graph.call_function(release, (self.handles[tensor],))
            self.drop(tensor)
            return
        source = self.joint.owner[tensor]
        assert source is not None
        self.owner[tensor] = wait_node(self.graph, self.pending.pop(tensor), source)

    def value(self, source: fx.Node) -> fx.Node:
        """Return the node that stands for `source` here; make its view again if need be."""
        if source.op == "get_attr":
            return self._constant(source)
        if source in self.joint.fused:
            return self._fused(source)
        tensor = self.joint.storage_of[source]
        if source is self.joint.owner[tensor]:
            return self.held(tensor)
        views = self.views[tensor]
        if source not in views:
            if aliased_argument(source) is None:
                return self.held(tensor)
            made = self.graph.node_copy(source, self.value)
            made.meta = dict(source.meta)
            views[source] = made
        return views[source]

    def _fused(self, source: fx.Node) -> fx.Node:
        """Return a node that is computed inside the op that is being added, once for it."""
        if source not in self.inside:
            made = self.graph.node_copy(source, self.value)
            made.meta = dict(source.meta)
            self.inside[source] = made
        return self.inside[source]

    def save(self, tensor: int) -> fx.Node:
        """Return the node that the forward pass returns for the backward pass."""
        source = self.held(tensor)
        if source.op == "placeholder":
            return source
        kept = self.graph.call_function(checkpoint, (source,))
        kept._rename(f"{source.name}_checkpoint")
        kept.meta = dict(source.meta)
        return kept

    def finish(self, outputs: list[object]) -> None:
        """Close the graph."""
        self.graph.output(tuple(outputs))  # type: ignore[arg-type]
        self.graph.lint()

    def _call(self, op_index: int, node: fx.Node, again: int) -> fx.Node:
        if op_index in self.joint.random_state and op_index in self.repeated:
            return self._random_call(op_index, node, again)
        made = self.graph.node_copy(node, self.value)
        return self._named(made, node, again)

    def _named(self, made: fx.Node, node: fx.Node, again: int) -> fx.Node:
        if again:
            made._rename(f"{node.name}_recompute_{again}")
        return made

    def _random_call(self, op_index: int, node: fx.Node, again: int) -> fx.Node:
        """First run: remember the generator's state. Later runs: replay from it, put it back."""
        args = fx.map_arg(node.args, self.value)
        kwargs = fx.map_arg(node.kwargs, self.value)
        state = self.joint.random_state[op_index]
        if again:
            replay: tuple[Any, ...] = (self.held(state), node.target, *args)
            made = self.graph.call_function(run_with_rng_state, replay, kwargs)
            return self._named(made, node, again)
        drawn: tuple[Any, ...] = (node.target, *args)
        pair = self.graph.call_function(run_and_save_rng_state, drawn, kwargs)
        pair._rename(f"{node.name}_and_random_state")
        saved = self.graph.call_function(operator.getitem, (pair, 0))
        saved._rename(self.joint.graph.tensors[state].name)
        saved.meta["val"] = _fake_random_state(self.joint, self.joint.graph.tensors[state].nbytes)
        self.owner[state] = saved
        made = self.graph.call_function(operator.getitem, (pair, 1))
        made._rename(node.name)
        return made

    def _bind_outputs(self, node: fx.Node, made: fx.Node, again: int) -> None:
        if tensor_value(node) is not None:
            self._hold(node, made)
            return
        for user in node.users:
            if user.target is operator.getitem and user in self.joint.storage_of:
                part = self.graph.call_function(operator.getitem, (made, user.args[1]))
                part.meta = dict(user.meta)
                self._hold(user, self._named(part, user, again))

    def _hold(self, source: fx.Node, made: fx.Node) -> None:
        """Take `made` as the instance of its storage, unless an earlier one must stay."""
        tensor = self.joint.storage_of[source]
        if aliased_argument(source) is None and tensor not in self.owner:
            self.owner[tensor] = made

    def held(self, tensor: int) -> fx.Node:
        """Return the node that holds a tensor now."""
        if tensor not in self.owner:
            name = self.joint.graph.tensors[tensor].name
            raise InvalidSchedule(0, f"{name!r} is read but not on the device")
        return self.owner[tensor]

    def _constant(self, source: fx.Node) -> fx.Node:
        """Return the node of a constant or sub-module that belongs to the graph module."""
        if source not in self.constants:
            made = self.graph.get_attr(str(source.target))
            made.meta = dict(source.meta)
            self.constants[source] = made
        return self.constants[source]


def _fake_random_state(joint: JointGraph, nbytes: int) -> torch.Tensor:
    """Return a fake tensor like the generator's state, in the fake mode of the graph."""
    with fake_mode_of(joint):
        return torch.empty(nbytes, dtype=torch.uint8)
