"""Answers from a plan: why a tensor is kept or made again, what the peak holds, what limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

from memplan.graph_capture.graph import Kind, Tensor
from memplan.planner.advice import held_bytes_text, pinned_by_kind
from memplan.planner.history import residence_spans
from memplan.planner.limits import lower_limit
from memplan.planner.plan import Plan
from memplan.planner.schedule import Compute, SwapOut
from memplan.units import format_bytes, format_ns

_WHY_PINNED = {
    Kind.INPUT: "an input of the step: the caller holds it",
    Kind.PARAM: "a parameter: it stays",
    Kind.BUFFER: "a buffer of the model: it stays",
    Kind.OPTIMIZER_STATE: "the optimizer's state: it stays",
    Kind.OUTPUT: "an output of the step: the caller holds it",
    Kind.GRADIENT: "a gradient: the optimizer reads it after the step",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStory:
    """What a plan does with one tensor.

    Attributes:
        tensor: Index of the tensor.
        spans: First and last step of each time it is on the device, both included.
        runs: How often its op runs.
        extra_ns: Time of the runs after the first.
        at_peak: Whether it is there at the peak.
    """

    tensor: int
    spans: tuple[tuple[int, int], ...]
    runs: int
    extra_ns: int
    at_peak: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleStory:
    """What a plan does with the tensors of one module that the backward pass reads.

    Attributes:
        module: Path of the module.
        kept_bytes: Stay on the device.
        dropped_bytes: Are dropped and made again.
        moved_bytes: Are moved to a tier and back.
        extra_ns: Time of the repeats of all its ops.
    """

    module: str
    kept_bytes: int = 0
    dropped_bytes: int = 0
    moved_bytes: int = 0
    extra_ns: int = 0


class Explanation:
    """A plan, ready to answer questions about it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.graph = plan.graph
        self._runs = Counter(step.op for step in plan.schedule if isinstance(step, Compute))
        self._moved = {
            step.tensor: step.tier for step in plan.schedule if isinstance(step, SwapOut)
        }

    @cached_property
    def stories(self) -> tuple[TensorStory, ...]:
        """For each tensor, by index, what the plan does with it."""
        spans = self._spans()
        peak = self.plan.timeline.peak_step
        found = []
        for t, made in enumerate(self.graph.producer):
            runs = self._runs[made] if made is not None else 0
            extra_ns = max(0, runs - 1) * (self.graph.ops[made].time_ns if made is not None else 0)
            there = any(first <= peak <= last for first, last in spans[t])
            found.append(
                TensorStory(
                    tensor=t, spans=tuple(spans[t]), runs=runs, extra_ns=extra_ns, at_peak=there
                )
            )
        return tuple(found)

    def at_peak(self) -> list[Tensor]:
        """Return the tensors on the device at the peak, largest first."""
        there = [self.graph.tensors[s.tensor] for s in self.stories if s.at_peak]
        return sorted(there, key=lambda tensor: (-tensor.nbytes, tensor.name))

    def peak_text(self) -> str:
        """Return in one sentence when the peak is."""
        step = self.plan.timeline.peak_step
        current = self.plan.schedule[step] if step >= 0 else None
        peak = format_bytes(self.plan.planned_peak_bytes)
        if not isinstance(current, Compute):
            return f"The peak is {peak}."
        op = self.graph.ops[current.op]
        where = f" in {op.module}" if op.module else ""
        return (
            f"The peak is {peak}, at step {step} of {len(self.plan.schedule)}, while the "
            f"{op.phase.value} op {op.name!r}{where} runs."
        )

    def why(self, t: int) -> str:
        """Return in one sentence what is done with a tensor, and why."""
        tensor, story = self.graph.tensors[t], self.stories[t]
        size = format_bytes(tensor.nbytes)
        made = self.graph.producer[t]
        if made is None or tensor.pinned:
            return f"{tensor.name} ({size}) is {_WHY_PINNED[tensor.kind]}."
        op = self.graph.ops[made]
        if story.runs > 1:
            return (
                f"{tensor.name} ({size}) is dropped and made again by {op.name!r}, "
                f"{story.runs - 1} time(s), {format_ns(story.extra_ns)} in all: that frees "
                f"{size} for {self._gap_steps(story)} steps."
            )
        if t in self._moved:
            tier = self.plan.tiers[self._moved[t]].name
            return (
                f"{tensor.name} ({size}) is moved to {tier} and back: that frees {size} for "
                f"{self._gap_steps(story)} steps."
            )
        if not self._is_carried(t):
            return f"{tensor.name} ({size}) is used up in its own pass and dropped at once."
        return f"{tensor.name} ({size}) is kept from forward to backward: {self._why_kept(made)}."

    def limit_text(self) -> list[str]:
        """Return what would have to change for a smaller budget."""
        graph, plan = self.graph, self.plan
        limit_bytes, at = lower_limit(graph)
        limit_bytes = max(limit_bytes, plan.limit_bytes)
        lines = [
            f"No plan that keeps or recomputes goes below {format_bytes(limit_bytes)} "
            f"({limit_bytes / max(1, plan.unplanned_peak_bytes):.0%} of the unplanned peak).",
            f"Of it, what no plan may free: {held_bytes_text(pinned_by_kind(graph))}.",
        ]
        if at >= 0:
            op = graph.ops[at]
            needs = sorted({*op.inputs, *op.outputs}, key=lambda t: -graph.tensors[t].nbytes)
            largest = ", ".join(
                f"{graph.tensors[t].name} {format_bytes(graph.tensors[t].nbytes)}"
                for t in needs[:3]
                if not graph.tensors[t].pinned
            )
            extra = f" workspace {format_bytes(op.workspace_bytes)}" if op.workspace_bytes else ""
            where = f" in {op.module}" if op.module else ""
            besides = f": {largest}{extra}" if largest or extra else " beside what stays: nothing"
            lines.append(f"The op that needs the most is {op.name!r}{where}{besides}.")
        lines.append(
            "To go lower: a smaller batch or sequence shrinks what that op needs, an optimizer "
            "with less state or half precision what must stay."
        )
        return lines

    def recomputed(self) -> list[tuple[int, int, int]]:
        """Return op, repeats and their time for every op that runs again, longest first."""
        again = [
            (i, runs - 1, (runs - 1) * self.graph.ops[i].time_ns)
            for i, runs in self._runs.items()
            if runs > 1
        ]
        return sorted(again, key=lambda item: (-item[2], item[0]))

    def modules(self) -> tuple[ModuleStory, ...]:
        """Return what is decided in each module, in the order of their first ops."""
        kept: Counter[str] = Counter()
        dropped: Counter[str] = Counter()
        moved: Counter[str] = Counter()
        extra: Counter[str] = Counter()
        for i, op in enumerate(self.graph.ops):
            extra[op.module] += max(0, self._runs[i] - 1) * op.time_ns
            for t in op.outputs:
                if self.graph.tensors[t].pinned or not self._is_carried(t):
                    continue
                place = dropped if self._runs[i] > 1 else moved if t in self._moved else kept
                place[op.module] += self.graph.tensors[t].nbytes
        rows = (
            ModuleStory(
                module=module,
                kept_bytes=kept[module],
                dropped_bytes=dropped[module],
                moved_bytes=moved[module],
                extra_ns=extra[module],
            )
            for module in dict.fromkeys(op.module for op in self.graph.ops)
        )
        empty = ModuleStory(module="")
        return tuple(row for row in rows if replace(row, module="") != empty)

    def _is_carried(self, t: int) -> bool:
        made = self.graph.producer[t]
        boundary = self.graph.boundary
        return made is not None and made < boundary <= max(self.graph.consumers[t], default=-1)

    def _why_kept(self, made: int) -> str:
        op = self.graph.ops[made]
        if not op.recomputable:
            return f"{op.name!r} must run only once (it updates something, or draws at random)"
        nbytes = sum(self.graph.tensors[t].nbytes for t in op.outputs)
        per_mb = op.time_ns / max(1, nbytes) * 1e6
        text = f"a second run of {op.name!r} takes {format_ns(op.time_ns)}, "
        text += f"{format_ns(round(per_mb))} a MB"
        again = self.recomputed()
        freed = sum(
            self.graph.tensors[t].nbytes for i, _, _ in again for t in self.graph.ops[i].outputs
        )
        if not again or not freed:
            return f"{text}, and the step fits without it"
        mean = sum(extra for _, _, extra in again) / freed * 1e6
        return f"{text}; what the plan makes again takes {format_ns(round(mean))} a MB"

    def _gap_steps(self, story: TensorStory) -> int:
        pairs = zip(story.spans, story.spans[1:], strict=False)
        return sum(later[0] - earlier[1] - 1 for earlier, later in pairs)

    def _spans(self) -> list[list[tuple[int, int]]]:
        spans: list[list[tuple[int, int]]] = [[] for _ in self.graph.tensors]
        for span in residence_spans(self.graph, self.plan.schedule):
            spans[span.tensor].append((span.first, span.last))
        return spans
