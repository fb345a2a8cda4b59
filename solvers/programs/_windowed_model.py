"""The variables and rows of the windowed MILP; see `memplan.solvers.programs.windowed`.

In each window the recomputations come first, in captured order, then the first runs. Of the
tensors that are alive across the start of a window:

    x[w, k]  tensor k is carried into window w
    r[w, i]  op i runs again in window w

An op may run again only in its home windows, in which a first run reads what it makes, and up to
`ahead` windows before them. Where nothing can happen to a tensor in a window, its x before and
after is one variable, so that the model grows with the ops, not with ops x windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

from memplan.planner.checkpoints import forward_end
from memplan.planner.problem import Problem
from memplan.solvers.programs._linear_program import INFINITY, LinearProgram
from memplan.solvers.programs._milp import CostScale
from memplan.solvers.programs._stages import Stages, smallest_tensors
from memplan.solvers.programs._windows import window_of

_SMALL_SHARE = 1e-3
"""The smallest tensors, up to this share of the budget together, are always kept."""
_NEAR = 3
"""Coarse windows no further apart than this count as one place."""
_UNITS = 1e4
"""Bytes are counted in this fraction of the budget; larger coefficients cost accuracy."""


class Decisions:
    """What the model may decide: which tensors can be let go, and where which ops run again."""

    def __init__(
        self, problem: Problem, starts: Sequence[int], coarse: Sequence[int], ahead: int
    ) -> None:
        """Decide where what may run again.

        Args:
            problem: The problem.
            starts: First op of each window.
            coarse: A subset of `starts`: those by which `ahead` counts.
            ahead: How many coarse windows before it is wanted something may be made.
        """
        self.graph, self.stages = problem.graph, Stages(problem.graph)
        self.starts, self.ahead = tuple(starts), ahead
        self.window = window_of(starts, len(self.graph.ops))
        of_op = window_of(coarse, len(self.graph.ops))
        self.segment = [of_op[start] if of_op else 0 for start in starts]
        """(windows,) the coarse window that each belongs to."""
        self.kept = smallest_tensors(problem, self.stages, _SMALL_SHARE)
        """Movable tensors that are never let go while they may be read."""
        self.inputs = [self._decided(ts) for ts in self.stages.inputs]
        self.outputs = [self._decided(ts) for ts in self.stages.outputs]
        self.again = self._again()
        """For each op the windows in which it may run again."""

    def _decided(self, tensors: Iterable[int]) -> tuple[int, ...]:
        return tuple(t for t in tensors if t not in self.kept)

    def _again(self) -> list[frozenset[int]]:
        """Go back from the readers: an op is wanted where what it makes is read, or wanted."""
        again: list[frozenset[int]] = [frozenset()] * len(self.graph.ops)
        wanted: list[set[int]] = [set() for _ in self.graph.ops]
        end = forward_end(self.graph)
        for i in range(len(self.graph.ops) - 1, -1, -1):
            own = self.window[i]
            if not self.graph.ops[i].recomputable or not self.outputs[i]:
                continue
            readers = [c for t in self.outputs[i] for c in self.graph.consumers[t]]
            read = {self.window[c] for c in readers if self.window[c] > own}
            of_readers = [wanted[c] for c in readers if (c < end) == (i < end)]
            wanted[i] = self._latest_of_each_run(read.union(*of_readers))
            if i < end:
                wanted[i] = {w for w in wanted[i] if self.starts[w] >= end}
            again[i] = frozenset(
                w
                for home in read | wanted[i]
                for w in range(own + 1, home + 1)
                if self.segment[w] >= self.segment[home] - self.ahead
            )
        return again

    def _latest_of_each_run(self, windows: Iterable[int]) -> set[int]:
        """Return the last of each group of windows that are near each other.

        A residual stream is wanted by every block after it, but made again near its own
        backward ops; a skip of a U-Net is wanted in two places far from each other.
        """
        ordered = sorted(windows)
        segment = self.segment
        far = {w for w, after in pairwise(ordered) if segment[after] - segment[w] > _NEAR}
        return far | set(ordered[-1:])

    @cached_property
    def last(self) -> list[int]:
        """(tensors,) the last window in which a tensor may be read; -1 for unread ones."""
        last = [-1] * len(self.graph.tensors)
        for i in range(len(self.graph.ops)):
            latest = max(self.again[i], default=self.window[i])
            for t in self.stages.inputs[i]:
                last[t] = max(last[t], latest, self.window[i])
        return last

    @cached_property
    def touched(self) -> list[set[int]]:
        """(tensors,) the windows in which a tensor may be read or made again."""
        touched: list[set[int]] = [set() for _ in self.graph.tensors]
        for i in range(len(self.graph.ops)):
            for t in self.inputs[i]:
                touched[t] |= {self.window[i], *self.again[i]}
            for t in self.outputs[i]:
                touched[t] |= self.again[i]
        return touched

    @cached_property
    def kept_bytes(self) -> list[int]:
        """(windows,) bytes of the tensors in `kept` that may be there in each window."""
        change = [0] * (len(self.starts) + 1)
        for t in sorted(self.kept):
            change[self.window[self.stages.source[t]]] += self.graph.tensors[t].nbytes
            change[self.last[t] + 1] -= self.graph.tensors[t].nbytes
        total, result = 0, []
        for w in range(len(self.starts)):
            total += change[w]
            result.append(total)
        return result


class WindowedModel:
    """The MILP of one problem."""

    def __init__(self, problem: Problem, decisions: Decisions) -> None:
        self.graph, self.decisions = problem.graph, decisions
        self.unit_bytes = max(1.0, problem.budget_bytes / _UNITS)
        self.budget = problem.budget_bytes / self.unit_bytes
        self.size = [t.nbytes / self.unit_bytes for t in self.graph.tensors]
        self.program = LinearProgram()
        self.scale = CostScale.of([op.time_ns for op in self.graph.ops])
        self.r: dict[tuple[int, int], int] = {}
        self.x: dict[tuple[int, int], int] = {}
        self.again_in: list[list[int]] = [[] for _ in decisions.starts]
        """For each window the ops that may run again in it, in order."""
        self._add_variables()
        for w in range(len(decisions.starts)):
            self._availability(w)
            self._memory(w)

    def _add_variables(self) -> None:
        decisions, program = self.decisions, self.program
        unit_ns = self.scale.unit_ns
        for i, windows in enumerate(decisions.again):
            for w in sorted(windows):
                cost = self.graph.ops[i].time_ns / unit_ns
                self.r[w, i] = program.column(cost, integer=True)
                self.again_in[w].append(i)
        for t in decisions.stages.tensors:
            if t in decisions.kept:
                continue
            born = decisions.window[decisions.stages.source[t]]
            for w in range(born + 1, decisions.last[t] + 1):
                if w - 1 == born or w - 1 in decisions.touched[t]:
                    self.x[w, t] = program.column(integer=True)
                else:
                    self.x[w, t] = self.x[w - 1, t]

    def runs(self, w: int, t: int, factor: float = 1.0) -> list[tuple[int, float]]:
        """Return the term of r for the op that makes `t`, if it may run again in `w`."""
        column = self.r.get((w, self.decisions.stages.source[t]))
        return [] if column is None else [(column, factor)]

    def carried(self, w: int, t: int, factor: float = 1.0) -> list[tuple[int, float]]:
        """Return the term of x, if there is one."""
        column = self.x.get((w, t))
        return [] if column is None else [(column, factor)]

    def _first_runs(self, w: int) -> range:
        starts = self.decisions.starts
        stop = starts[w + 1] if w + 1 < len(starts) else len(self.graph.ops)
        return range(starts[w], stop)

    def _present(self, w: int, t: int, factor: float = 1.0) -> list[tuple[int, float]]:
        """Return the terms of: `t`, older than window `w`, is there at some time in it."""
        return self.carried(w, t, factor) + self.runs(w, t, factor)

    def _availability(self, w: int) -> None:
        """What is read is carried in or made again; what is carried on was there."""
        decisions, program = self.decisions, self.program
        start = decisions.starts[w]
        older = {t for t in self._tensors(w) if decisions.stages.source[t] < start}
        read = {t for i in self._first_runs(w) for t in decisions.inputs[i]}
        for t in sorted(older):
            present, on = self._present(w, t), self.carried(w + 1, t, -1.0)
            if t in read:
                program.row(1.0, present, 1.0)
            elif len(present) > 1:
                program.at_most(present, 1.0)
            if t not in read and on and self.x[w + 1, t] != self.x.get((w, t)):
                program.row(0.0, present + on, INFINITY)
        for i in self.again_in[w]:
            for t in decisions.inputs[i]:
                program.row(0.0, [*self._present(w, t), (self.r[w, i], -1.0)], INFINITY)

    def _tensors(self, w: int) -> list[int]:
        """Return the decided tensors that may be there in `w`, before its first runs or after."""
        found = {t for (at, t) in self.x if at == w}
        return sorted(found | {t for i in self.again_in[w] for t in self.decisions.outputs[i]})

    def _memory(self, w: int) -> None:
        """Add the running sum of live bytes; nowhere is it above the budget.

        After a tensor's last possible read in the window, or its recomputation where that is
        later, it is there only if it is carried on.
        """
        decisions, stages, size = self.decisions, self.decisions.stages, self.size
        first_runs = self._first_runs(w)
        last_use = self._last_uses(w)
        leaving: dict[int, list[int]] = {}
        for t, i in last_use.items():
            leaving.setdefault(i, []).append(t)
        here = self._tensors(w)
        live = _Running(self.program, [a for t in here for a in self.carried(w, t, size[t])])
        kept = decisions.kept_bytes[w] / self.unit_bytes
        for i in (*self.again_in[w], *first_runs):
            running = stages.running_bytes[i] / self.unit_bytes
            room = self.budget - kept - stages.fixed_bytes[max(i, first_runs[0])] / self.unit_bytes
            change: list[tuple[int, float]] = []
            if i in first_runs:
                live.at_most(room - running)
                for t in decisions.outputs[i]:
                    if t in last_use:
                        live.fixed += size[t]
                    else:
                        change += self.carried(w + 1, t, size[t])
            else:
                r = self.r[w, i]
                live.at_most(room, [(r, running)])
                change += [(r, size[t]) for t in decisions.outputs[i]]
            for t in leaving.get(i, ()):
                if stages.source[t] in first_runs:
                    live.fixed -= size[t]
                else:
                    change += self._present(w, t, -size[t])
                change += self.carried(w + 1, t, size[t])
            live.add(change)
        live.close()

    def _last_uses(self, w: int) -> dict[int, int]:
        """For each tensor that may be touched in `w`, the op after which it may leave."""
        decisions = self.decisions
        last: dict[int, int] = {}
        for i in self.again_in[w]:
            for t in (*decisions.outputs[i], *decisions.inputs[i]):
                last[t] = i
        for i in self._first_runs(w):
            for t in decisions.inputs[i]:
                last[t] = i
        return last

    def sequence(self, values: Sequence[float]) -> tuple[int, ...]:
        """Return the ops of all windows, in order."""
        order: list[int] = []
        for w in range(len(self.decisions.starts)):
            order += [i for i in self.again_in[w] if values[self.r[w, i]] > 0.5]
            order += self._first_runs(w)
        return tuple(order)

    def require_faster_than(self, time_ns: float) -> None:
        """Add the row that the step takes less time than that."""
        least = 1.0 if self.scale.exact else 0.5
        extra = (time_ns - self.graph.time_ns) / self.scale.unit_ns - least
        costs = enumerate(self.program.costs)
        self.program.at_most([(column, cost) for column, cost in costs if cost], extra)

    def start(self, sequence: Sequence[int]) -> dict[int, float] | None:
        """Return the r of a sequence, or None where an op runs again where it may not."""
        values = dict.fromkeys(self.r.values(), 0.0)
        at = 0
        for i in sequence:
            if i == at:
                at += 1
                continue
            column = self.r.get((self.decisions.window[at], i))
            if column is None:
                return None
            values[column] = 1.0
        return values


class _Running:
    """A sum of terms that changes from op to op, as one column for each value."""

    def __init__(self, program: LinearProgram, terms: list[tuple[int, float]]) -> None:
        self.program, self.fixed = program, 0.0
        self.limit = INFINITY
        self.column = program.column(lower=-INFINITY, upper=INFINITY)
        program.row(0.0, [*terms, (self.column, -1.0)], 0.0)

    def at_most(self, room: float, terms: Sequence[tuple[int, float]] = ()) -> None:
        """Require that the sum and `terms` are within `room`."""
        if terms:
            self.program.at_most([(self.column, 1.0), *terms], room - self.fixed)
        else:
            self.limit = min(self.limit, room - self.fixed)

    def add(self, terms: list[tuple[int, float]]) -> None:
        """Go on with the sum and `terms`."""
        if terms:
            self.close()
            before, self.limit = self.column, INFINITY
            self.column = self.program.column(lower=-INFINITY, upper=INFINITY)
            self.program.row(0.0, [*terms, (before, 1.0), (self.column, -1.0)], 0.0)

    def close(self) -> None:
        """Set the limit of the last value."""
        self.program.upper[self.column] = self.limit
