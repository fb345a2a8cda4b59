"""The verified result of planning: a schedule, its graph, and what it costs, in one file.

The file is JSON text with one top-level key a line. Its numbers are for other programs: on
reading, every one of them is computed again from the graph and the schedule, so that a file
that was changed by hand or made by another version is refused rather than believed.

All keys but `timing` are a function of the graph, the budget, the solver with its options and
the limits: `to_json(timing=False)` leaves that one out and gives the same bytes every time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memplan.errors import InvalidGraph, InvalidSchedule, PlanMismatch, UsageError
from memplan.graph_capture.graph import Graph, Op, Phase
from memplan.planner.atomic_write import write_atomically
from memplan.planner.plan_steps import read_step, write_step
from memplan.planner.problem import Problem
from memplan.planner.schedule import Compute, Prefetch, Schedule, schedule_of, sequence_of
from memplan.planner.simulate import Timeline, resident_after, simulate
from memplan.planner.solver import Status
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify

SCHEMA = "memplan.plan/1"

_AGAIN = "make the plan again with `memplan compile`"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A schedule that the judge accepted, with all that is needed to use and explain it.

    Attributes:
        graph: The training step that was planned.
        schedule: What to run and what to drop, in order.
        budget_bytes: The budget that was asked for, in bytes.
        status: OPTIMAL (proven for the captured order) or FEASIBLE.
        solver: Name of the solver that found the schedule.
        proven_bound_ns: No schedule of the captured order within the budget is faster.
        model_bound_ns: The bound in the solver's own model, where it has one.
        limit_bytes: Proven lower limit: every schedule's peak is at least this.
        solve_seconds: Time of the solver. This field and the next may differ between two runs,
            and so are no part of a comparison.
        solver_memory_bytes: By how much the solver raised the peak memory of its process.
        provenance: What the plan was made for and with: `graph_sha256`, versions, device,
            kind of profile, optimizer, limits, options of the solver.
        notes: Remarks for people, one sentence each.
        tiers: Where the schedule may move tensors to.
    """

    graph: Graph
    schedule: Schedule
    budget_bytes: int
    status: Status
    solver: str
    proven_bound_ns: int
    model_bound_ns: int | None = None
    limit_bytes: int = 0
    solve_seconds: float = field(default=0.0, compare=False)
    solver_memory_bytes: int = field(default=0, compare=False)
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    tiers: tuple[Tier, ...] = ()

    @property
    def problem(self) -> Problem:
        """What was asked."""
        return Problem(graph=self.graph, budget_bytes=self.budget_bytes, tiers=self.tiers)

    def __repr__(self) -> str:
        return (
            f"<Plan of {self.graph.name!r}: peak {self.planned_peak_bytes:,} of "
            f"{self.budget_bytes:,} bytes, unplanned {self.unplanned_peak_bytes:,}, "
            f"{len(self.graph.ops):,} ops, {self.recomputed_ops:,} runs repeated, "
            f"{self.overhead:+.1%} time, {self.status.value} by {self.solver}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the text of its file, which is checked when it is read."""
        return Plan.from_json, (self.to_json(),)

    @cached_property
    def timeline(self) -> Timeline:
        """Memory and time of the plan, step by step."""
        return simulate(self.graph, self.schedule, self.tiers)

    @cached_property
    def unplanned_peak_bytes(self) -> int:
        """Peak of the step in the captured order with nothing recomputed."""
        graph = self.graph
        return simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes

    @property
    def planned_peak_bytes(self) -> int:
        """Peak of the step as planned."""
        return self.timeline.peak_bytes

    @property
    def unplanned_time_ns(self) -> int:
        """Time of the step with every op run once, by the profile."""
        return self.graph.time_ns

    @property
    def planned_time_ns(self) -> int:
        """Time of the step as planned, by the profile."""
        return self.timeline.time_ns

    @property
    def recomputed_ops(self) -> int:
        """How many runs of an op are repeats."""
        sequence = sequence_of(self.schedule)
        return len(sequence) - len(set(sequence))

    @property
    def overhead(self) -> float:
        """Extra time of the plan, as a fraction of the unplanned step."""
        return self._fraction(self.planned_time_ns)

    @property
    def proven_bound(self) -> float:
        """No schedule within the budget has a smaller `overhead`."""
        return self._fraction(self.proven_bound_ns)

    @property
    def model_bound(self) -> float | None:
        """The solver's own bound on `overhead`; None where it has no model of its own."""
        return None if self.model_bound_ns is None else self._fraction(self.model_bound_ns)

    @property
    def gap(self) -> float:
        """How much longer the planned step takes than the proven bound, as a fraction of that."""
        above_ns = self.planned_time_ns - self.proven_bound_ns
        return above_ns / self.proven_bound_ns if self.proven_bound_ns else 0.0

    @cached_property
    def bytes_at_peak(self) -> Mapping[str, int]:
        """Bytes in use at the peak, by `Kind` value, largest first; they add up to the peak.

        `workspace` is what the running op needs for itself. All that the optimizer's own ops
        make and use up is under `update`.
        """
        return MappingProxyType(_bytes_at_peak(self.graph, self.schedule, self.timeline))

    @cached_property
    def modules_at_peak(self) -> Mapping[str, int]:
        """Bytes that could be freed but are in use at the peak, by module, largest first.

        A tensor belongs to the module whose op made it; `""` stands for ops outside all modules,
        such as the loss.
        """
        return MappingProxyType(_modules_at_peak(self.graph, self.schedule, self.timeline))

    def summary(self) -> dict[str, Any]:
        """Return the figures of the plan under the keys of its file."""
        return {
            "budget_bytes": self.budget_bytes,
            "unplanned_peak_bytes": self.unplanned_peak_bytes,
            "planned_peak_bytes": self.planned_peak_bytes,
            "limit_bytes": self.limit_bytes,
            "unplanned_time_ns": self.unplanned_time_ns,
            "planned_time_ns": self.planned_time_ns,
            "proven_bound_ns": self.proven_bound_ns,
            "model_bound_ns": self.model_bound_ns,
            "overhead": self.overhead,
            "proven_bound": self.proven_bound,
            "model_bound": self.model_bound,
            "gap": self.gap,
            "status": self.status.value,
            "solver": self.solver,
            "recomputed_ops": self.recomputed_ops,
            "bytes_at_peak": dict(self.bytes_at_peak),
            **self._swap_summary(),
        }

    def _swap_summary(self) -> dict[str, Any]:
        """Figures of the transfers; none where there is no tier."""
        if not self.tiers:
            return {}
        timeline = self.timeline
        return {
            "swapped_bytes": timeline.swapped_bytes,
            "swap_buffer_bytes": timeline.buffer_bytes,
            "stall_ns": timeline.stall_ns,
        }

    def to_json(self, *, timing: bool = True) -> str:
        """Return the plan as JSON text that `from_json` reads back unchanged.

        Args:
            timing: Whether to write how long the solver took. Without it, equal plans give
                equal text.
        """
        content = {"schema": SCHEMA, **self.summary()}
        if timing:
            content["timing"] = {
                "solve_seconds": self.solve_seconds,
                "solver_memory_bytes": self.solver_memory_bytes,
            }
        content["notes"] = list(self.notes)
        content["provenance"] = dict(sorted(self.provenance.items()))
        if self.tiers:
            content["tiers"] = [asdict(tier) for tier in self.tiers]
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
        steps = json.dumps([write_step(step) for step in self.schedule])
        lines += [f'"schedule": {steps}', f'"graph": {self.graph.to_json()}']
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote, and check all of it.

        Raises:
            PlanMismatch: The text is no plan of this schema, or is damaged, or its schedule
                breaks a rule, or its figures are not those of its schedule.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanMismatch(f"the plan is not JSON ({error}); {_AGAIN}") from None
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            raise PlanMismatch(
                f"the plan has schema {schema!r}, this memplan reads {SCHEMA!r}; {_AGAIN}"
            )
        try:
            plan = _read(content)
            verify(plan.problem, plan.schedule)
        except (InvalidGraph, InvalidSchedule, UsageError) as error:
            raise PlanMismatch(f"the plan does not hold: {error}; {_AGAIN}") from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PlanMismatch(f"the plan is damaged ({error!r}); {_AGAIN}") from None
        for key, value in plan.summary().items():
            if content.get(key) != value:
                raise PlanMismatch(
                    f"the plan says {key} {content.get(key)!r}, its schedule has {value!r}; "
                    f"{_AGAIN}"
                )
        return plan

    def save(self, path: str | Path, *, timing: bool = True) -> None:
        """Write the plan to `path`, which holds either the old file or the whole new one.

        Raises:
            UsageError: The folder cannot be written to, or is full.
        """
        try:
            write_atomically(Path(path), self.to_json(timing=timing))
        except OSError as error:
            raise UsageError(f"cannot write the plan to {path}: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read and check the plan at `path`.

        Raises:
            PlanMismatch: As `from_json`; the text names the file.
            UsageError: The file is not there or cannot be read.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"cannot read the plan {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise PlanMismatch(f"{path}: the plan is not text; {_AGAIN}") from None
        except PlanMismatch as error:
            raise PlanMismatch(f"{path}: {error}") from None

    def _fraction(self, time_ns: int) -> float:
        base_ns = self.unplanned_time_ns
        return (time_ns - base_ns) / base_ns if base_ns else 0.0


def _bytes_at_peak(graph: Graph, schedule: Schedule, timeline: Timeline) -> dict[str, int]:
    by_kind: Counter[str] = Counter({"swap_buffers": timeline.buffer_bytes})
    running = _op_at_peak(graph, schedule, timeline)
    if running is not None:
        owner = "update" if running.phase is Phase.UPDATE else "workspace"
        by_kind[owner] += running.workspace_bytes
    for t in _instances_at_peak(graph, schedule, timeline):
        tensor, made = graph.tensors[t], graph.producer[t]
        for_update = made is not None and graph.ops[made].phase is Phase.UPDATE
        owner = "update" if for_update and not tensor.pinned else tensor.kind.value
        by_kind[owner] += tensor.nbytes
    return _largest_first(by_kind)


def _modules_at_peak(graph: Graph, schedule: Schedule, timeline: Timeline) -> dict[str, int]:
    by_module: Counter[str] = Counter()
    for t in _instances_at_peak(graph, schedule, timeline):
        made = graph.producer[t]
        if made is not None and not graph.tensors[t].pinned:
            by_module[graph.ops[made].module] += graph.tensors[t].nbytes
    return _largest_first(by_module)


def _largest_first(amounts: Mapping[str, int]) -> dict[str, int]:
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    return {owner: nbytes for owner, nbytes in ordered if nbytes}


def _op_at_peak(graph: Graph, schedule: Schedule, timeline: Timeline) -> Op | None:
    current = schedule[timeline.peak_step] if schedule else None
    return graph.ops[current.op] if isinstance(current, Compute) else None


def _instances_at_peak(graph: Graph, schedule: Schedule, timeline: Timeline) -> list[int]:
    """Return the tensors in use at the peak, one twice where it is kept and written again."""
    there = list(resident_after(graph, schedule[: max(0, timeline.peak_step)]))
    current = schedule[timeline.peak_step] if schedule else None
    if isinstance(current, Prefetch):
        there.append(current.tensor)
    running = _op_at_peak(graph, schedule, timeline)
    return there + list(running.outputs if running else ())


def _read(content: dict[str, Any]) -> Plan:
    """Build a plan from parsed JSON; the schedule and the figures are not checked here."""
    status = Status(content["status"])
    if status not in (Status.OPTIMAL, Status.FEASIBLE):
        raise ValueError(f"a plan cannot be {status.value}")
    whole = {key: content[key] for key in ("budget_bytes", "proven_bound_ns", "limit_bytes")}
    if wrong := [key for key, value in whole.items() if type(value) is not int]:
        raise TypeError(f"{wrong[0]} is not a whole number")
    model_bound_ns = content["model_bound_ns"]
    return Plan(
        graph=Graph.from_dict(content["graph"]),
        schedule=tuple(read_step(step) for step in content["schedule"]),
        status=status,
        solver=str(content["solver"]),
        model_bound_ns=None if model_bound_ns is None else int(model_bound_ns),
        solve_seconds=float(content.get("timing", {}).get("solve_seconds", 0.0)),
        solver_memory_bytes=int(content.get("timing", {}).get("solver_memory_bytes", 0)),
        provenance=MappingProxyType({str(k): str(v) for k, v in content["provenance"].items()}),
        notes=tuple(str(note) for note in content["notes"]),
        tiers=tuple(Tier(**tier) for tier in content.get("tiers", [])),
        **whole,
    )
