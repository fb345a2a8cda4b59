"""The order of a few ops with the smallest peak, by integer programming.

Source: Steiner et al., "OLLA: Optimizing the Lifetime and Location of Arrays to Reduce the Memory
Usage of Neural Networks" (2022), section 3: when each tensor is made and until when it is kept,
within the windows that the other ops leave. One op runs at a time, so that an op has a place; and
done[v, p], whether op v has run at place p or before, gives a tighter relaxation than the place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memplan.solvers.programs._milp import Outcome, add_row, solve_milp


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Ops that run one after the other, whatever their order, between others.

    Attributes:
        ops: In the order that there is now.
        before: For each of them by index, those of `ops` that must run before it.
        beside_bytes: Bytes of what is there all the time.
        workspace_bytes: By op.
        lives: Tensors that come or go in the part.
    """

    ops: tuple[int, ...]
    before: Mapping[int, tuple[int, ...]]
    beside_bytes: int
    workspace_bytes: Mapping[int, int]
    lives: tuple[Life, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One tensor within a part.

    Attributes:
        nbytes: Its size.
        source: The op that makes it; None where it is there when the part begins.
        readers: The ops of the part after which it goes; empty where it outlives the part.
        outlives: Whether it stays after the part.
    """

    nbytes: int
    source: int | None
    readers: tuple[int, ...]
    outlives: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOrder:
    """The best order of a part that was found.

    Attributes:
        ops: None where none better than the one there was has been found.
        least_bytes: No order of the part has a smaller peak, as far as it is proven.
    """

    ops: tuple[int, ...] | None
    least_bytes: int


def best_order(part: Part, goal_bytes: int, time_s: float, threads: int, seed: int) -> PartOrder:
    """Return the order of `part` with the smallest peak, or one with at most `goal_bytes`."""
    model = _OrderModel(part, goal_bytes)
    result = solve_milp(model.problem, time_s, threads, seed, model.start_values())
    if result.outcome not in (Outcome.OPTIMAL, Outcome.FEASIBLE):
        return PartOrder(ops=None, least_bytes=0)
    # The goal is a row of the model, so a bound at the goal says nothing of what is below.
    bound_bytes = model.bytes_of(result.bound)
    return PartOrder(
        ops=model.order(result.values),
        least_bytes=0 if bound_bytes <= goal_bytes else bound_bytes,
    )


class _OrderModel:
    """The variables of one part."""

    def __init__(self, part: Part, goal_bytes: int) -> None:
        import pulp

        self.part, self.count = part, len(part.ops)
        self.unit = max(1.0, goal_bytes / 1e4)
        self.problem = pulp.LpProblem("order", pulp.LpMinimize)
        self.first, self.last = self._windows()
        self.done = {
            (v, p): self.problem.add_variable(f"D_{v}_{p}", 0, 1, "Binary")
            for v in part.ops
            for p in range(self.first[v], self.last[v])
        }
        self.live: dict[tuple[int, int], Any] = {}
        self.peak = self.problem.add_variable("peak", goal_bytes / self.unit)
        self.problem += pulp.LpAffineExpression([(self.peak, 1.0)])
        self._one_at_a_time()
        self._lives()
        for p in range(self.count):
            self._bytes_at(p)

    def bytes_of(self, objective: float) -> int:
        """Return whole bytes that a bound of the objective proves, up to the tolerance."""
        if not math.isfinite(objective):
            return 0
        return max(0, math.ceil((objective - 1e-6 * max(1.0, abs(objective))) * self.unit))

    def _windows(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the first and the last place of each op: those before it, those after it."""
        all_before: dict[int, set[int]] = {}
        for v in self.part.ops:
            direct = self.part.before[v]
            all_before[v] = set(direct).union(*(all_before[u] for u in direct))
        after = dict.fromkeys(self.part.ops, 0)
        for v in self.part.ops:
            for u in all_before[v]:
                after[u] += 1
        first = {v: len(all_before[v]) for v in self.part.ops}
        last = {v: self.count - 1 - after[v] for v in self.part.ops}
        return first, last

    def _has_run(self, v: int, p: int) -> tuple[list[tuple[Any, float]], float]:
        """Terms and a constant of whether op v has run at place p or before."""
        if p < self.first[v]:
            return [], 0.0
        return ([], 1.0) if p >= self.last[v] else ([(self.done[v, p], 1.0)], 0.0)

    def _runs_at(self, v: int, p: int) -> tuple[list[tuple[Any, float]], float]:
        now, known = self._has_run(v, p)
        before, known_before = self._has_run(v, p - 1)
        return [*now, *((x, -f) for x, f in before)], known - known_before

    def _row(self, terms: Sequence[tuple[Any, float]], sense: str, right: float) -> None:
        if terms:
            add_row(self.problem, terms, sense, right)

    def _one_at_a_time(self) -> None:
        for p in range(self.count):
            terms, known = [], 0.0
            for v in self.part.ops:
                has_run, constant = self._has_run(v, p)
                terms += has_run
                known += constant
            self._row(terms, "==", p + 1 - known)
        for v in self.part.ops:
            for p in range(self.first[v], self.last[v] - 1):
                self._row([(self.done[v, p], 1.0), (self.done[v, p + 1], -1.0)], "<=", 0.0)
            for u in self.part.before[v]:
                for p in range(self.first[v], self.last[v] + 1):
                    later, known = self._has_run(v, p)
                    earlier, known_earlier = self._has_run(u, p - 1)
                    terms = [*later, *((x, -f) for x, f in earlier)]
                    self._row(terms, "<=", known_earlier - known)

    def _lives(self) -> None:
        """A tensor is there at a place if it has been made and a reader has not run before."""
        for k, life in enumerate(self.part.lives):
            for p in range(self.count):
                made, known = ([], 1.0) if life.source is None else self._has_run(life.source, p)
                if not made and not known:
                    continue
                here = self.live[k, p] = self.problem.add_variable(f"L_{k}_{p}", 0, 1)
                if life.outlives:
                    self._row([*made, (here, -1.0)], "<=", -known)
                    continue
                alone, known_alone = made, known
                if life.source is not None and not life.readers:
                    alone, known_alone = self._runs_at(life.source, p)
                for reader in life.readers or (None,):
                    gone, known_gone = (
                        ([], 0.0) if reader is None else self._has_run(reader, p - 1)
                    )
                    terms = [*alone, *((x, -f) for x, f in gone), (here, -1.0)]
                    self._row(terms, "<=", known_gone - known_alone)

    def _bytes_at(self, p: int) -> None:
        part, unit = self.part, self.unit
        terms: list[tuple[Any, float]] = [(self.peak, -1.0)]
        known_bytes = float(part.beside_bytes)
        for k, life in enumerate(part.lives):
            if (k, p) in self.live:
                terms.append((self.live[k, p], life.nbytes / unit))
        for v in part.ops:
            if part.workspace_bytes[v]:
                runs, known = self._runs_at(v, p)
                terms += [(x, f * part.workspace_bytes[v] / unit) for x, f in runs]
                known_bytes += known * part.workspace_bytes[v]
        sums: dict[str, tuple[Any, float]] = {}
        for x, factor in terms:
            sums[x.name] = (x, factor + sums.get(x.name, (x, 0.0))[1])
        self._row(list(sums.values()), "<=", -known_bytes / unit)

    def order(self, values: Mapping[str, float]) -> tuple[int, ...]:
        """Return the ops by their place, which is when they have first run."""
        place = {
            v: self.last[v]
            - sum(values[self.done[v, p].name] > 0.5 for p in range(self.first[v], self.last[v]))
            for v in self.part.ops
        }
        return tuple(sorted(self.part.ops, key=place.__getitem__))

    def start_values(self) -> dict[str, float]:
        """Return every variable's value for the order that there is."""
        place = {v: p for p, v in enumerate(self.part.ops)}
        values = {x.name: float(place[v] <= p) for (v, p), x in self.done.items()}
        used = []
        for p in range(self.count):
            nbytes = self.part.beside_bytes + self.part.workspace_bytes[self.part.ops[p]]
            for k, life in enumerate(self.part.lives):
                here = _is_live(life, place, p)
                nbytes += here * life.nbytes
                if (k, p) in self.live:
                    values[self.live[k, p].name] = float(here)
            used.append(nbytes / self.unit)
        values["peak"] = max([self.peak.lowBound, *used])
        return values


def _is_live(life: Life, place: Mapping[int, int], p: int) -> bool:
    born = -1 if life.source is None else place[life.source]
    if life.outlives:
        return born <= p
    last = max((place[v] for v in life.readers), default=born)
    return born <= p <= last
