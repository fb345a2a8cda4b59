"""`torch.compile(model, backend="memplan", dynamic=False, options={"budget": "50%"})`.

Found by torch through its entry-point group `torch_dynamo_backends`.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn

from memplan.codegen.backend import Backend
from memplan.errors import CaptureError, InfeasibleBudget, UsageError
from memplan.graph_capture.joint import JointGraph
from memplan.graph_capture.module_path import dotted_name
from memplan.planner.plan import Plan
from memplan.planner.problem import Limits
from memplan.planner.schedule import Compute
from memplan.step_planner import StepPlanner, pricer_for
from memplan.units import format_bytes

_DEFAULTS: dict[str, Any] = {
    "budget": None,
    "device": None,
    "lowering": "eager",
    "optimizer": None,
    "profile": "measured",
    "solver": "auto",
    "time_limit": 60.0,
}


def memplan_backend(
    module: fx.GraphModule,
    example_inputs: list[torch.Tensor],
    *,
    options: Mapping[str, Any] | None = None,
    **other: Any,
) -> Callable[..., Any]:
    """Plan one graph of Dynamo's for a memory budget; `torch.compile` calls this.

    A backend sees one graph at a time and no model, so that less is known than by
    `memplan.compile`. Not in the budget are the optimizer's state unless `options` name the
    optimizer, parameters, buffers and inputs that no graph reads, and a loss that is computed
    outside the compiled function.

    Where the model breaks into several graphs, each is planned on its own. `50%` and `min` are
    meant for each of them. Of a budget in bytes, a graph that ends in a break gets half of what
    is left, or the least it can do with, and the last one gets all that is left; what a graph
    keeps for its backward pass is taken from the budget of the later ones. That is a division,
    no promise for the whole step, and a warning says so.

    Args:
        module: What Dynamo captured.
        example_inputs: Its inputs.
        options: `budget` as for `memplan.compile`, which is required, and as there `solver`,
            `optimizer`, `device`, `profile` and `time_limit`. With `lowering` `"inductor"` the
            planned graphs are compiled by Inductor; their peak is then planned and not measured.
        other: Nothing; `mode` has no meaning here.

    Raises:
        UsageError: An option is missing, unknown or cannot be meant.
        CaptureError: The graph has dynamic shapes.
        InfeasibleBudget: No schedule of the graph fits its share.
    """
    chosen = _checked(options, other)
    if any(isinstance(value, torch.SymInt) for value in example_inputs):
        raise CaptureError(
            "the graph has dynamic shapes; call torch.compile with dynamic=False, and each shape "
            "gets a plan of its own"
        )
    pieces = _pieces_of(options)
    piece = _Piece(frame=_frame(), breaks=_ends_in_break(module))
    planner = StepPlanner(
        pricer=pricer_for(
            _state_of(module), chosen["optimizer"], chosen["device"], chosen["profile"], None
        ),
        budget=chosen["budget"],
        solver=chosen["solver"],
        limits=Limits(time_s=chosen["time_limit"]),
    )

    def plan_for(joint: JointGraph) -> Plan:
        return _planned_within_share(planner, joint, pieces, piece)

    return Backend(plan_for, lowering=chosen["lowering"])(module, example_inputs)


@dataclass(slots=True)
class _Piece:
    """One of the graphs that a compiled function falls into.

    Attributes:
        frame: Tells the pieces apart; a new shape or mode comes with the same frames again.
        breaks: Whether the function goes on in another piece.
        before: The pieces that ran before it.
        kept_bytes: What is on the device between its forward and its backward pass.
    """

    frame: int
    breaks: bool
    before: tuple[_Piece, ...] = ()
    kept_bytes: int = 0


@dataclass(slots=True)
class _Pieces:
    """The graphs of one call of `torch.compile`, by frame, and those that are still unfinished."""

    known: dict[int, _Piece] = field(default_factory=dict)
    unfinished: tuple[_Piece, ...] = ()

    def place(self, piece: _Piece) -> None:
        again = self.known.get(piece.frame)
        piece.before = again.before if again else self.unfinished
        self.known[piece.frame] = piece
        self.unfinished = (*piece.before, piece) if piece.breaks else ()


# One dictionary of options belongs to one call of torch.compile; it is kept so that its id stays.
_PIECES: dict[int, tuple[object, _Pieces]] = {}


def _pieces_of(options: object) -> _Pieces:
    return _PIECES.setdefault(id(options), (options, _Pieces()))[1]


def _planned_within_share(
    planner: StepPlanner, joint: JointGraph, pieces: _Pieces, piece: _Piece
) -> Plan:
    pieces.place(piece)
    budget = planner.budget
    if not (piece.breaks or piece.before):
        return planner(joint)
    in_bytes = not isinstance(budget, str) or not (budget.strip().endswith(("%", "min")))
    share = _share(planner, piece) if in_bytes else budget
    try:
        plan = replace(planner, budget=share)(joint)
    except InfeasibleBudget as error:
        least_bytes = error.feasible_bytes
        if not (piece.breaks and in_bytes and least_bytes is not None):
            raise
        plan = replace(planner, budget=least_bytes)(joint)
    piece.kept_bytes = _bytes_at_boundary(plan)
    warnings.warn(
        f"the model breaks into several graphs; number {len(piece.before) + 1} is planned on its "
        f"own for {format_bytes(plan.budget_bytes)}, which is no promise for the whole step",
        stacklevel=2,
    )
    return plan


def _share(planner: StepPlanner, piece: _Piece) -> int:
    """Return the bytes of an absolute budget that a piece may use."""
    left_bytes = planner.budget_bytes - sum(p.kept_bytes for p in piece.before)
    return max(left_bytes // 2 if piece.breaks else left_bytes, 1)


def _bytes_at_boundary(plan: Plan) -> int:
    boundary = plan.graph.boundary
    for place, step in enumerate(plan.schedule):
        if step == Compute(boundary):
            return plan.timeline.live_bytes[place]
    return plan.planned_peak_bytes


def _checked(options: Mapping[str, Any] | None, other: Mapping[str, Any]) -> dict[str, Any]:
    if other:
        raise UsageError(
            f"the backend takes no {next(iter(other))}; give options={{'budget': ...}}"
        )
    given = dict(options or {})
    for name in given:
        if name not in _DEFAULTS:
            close = difflib.get_close_matches(str(name), _DEFAULTS, n=1)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(_DEFAULTS)}"
            )
            raise UsageError(f"the backend has no option {name!r}; {hint}")
    if given.get("budget") is None:
        raise UsageError("the backend needs a budget, as in options={'budget': '8GB'}")
    if (lowering := given.get("lowering", "eager")) not in ("eager", "inductor"):
        raise UsageError(f"no lowering is called {lowering!r}; choose eager or inductor")
    time_limit = given.get("time_limit", 1.0)
    if isinstance(time_limit, bool) or not isinstance(time_limit, (int, float)) or time_limit <= 0:
        raise UsageError(f"the time limit {time_limit!r} is not a positive number of seconds")
    return _DEFAULTS | given


class Captured(nn.Module):
    """Holds the parameters and buffers that a graph reads, by their names in the model."""


def _state_of(module: fx.GraphModule) -> nn.Module:
    state = Captured()
    for node in module.graph.find_nodes(op="placeholder"):
        if "grapharg" not in node.meta:
            continue
        example, name = node.meta["grapharg"].example, node.meta["grapharg"].source.name
        if isinstance(example, nn.Parameter):
            # Not by register_parameter, which takes no dots.
            state._parameters[dotted_name(name)] = example
        elif isinstance(example, torch.Tensor) and "_buffers[" in name:
            state._buffers[dotted_name(name)] = example
    return state


def _frame() -> int:
    compile_id = torch._guards.CompileContext.current_compile_id()
    return -1 if compile_id is None or compile_id.frame_id is None else compile_id.frame_id


def _ends_in_break(module: fx.GraphModule) -> bool:
    reason = getattr(module, "compile_subgraph_reason", None)
    return bool(getattr(reason, "graph_break", False))
