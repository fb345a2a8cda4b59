"""The dynamic program for heterogeneous chains, over the bytes that are left.

Source: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous
chains: how to train deep neural networks with limited memory" (2019).

A segment (s, t) has the input of stage s on the device and has to run the windows of t, t - 1,
.., s. With m bytes left beside that input it either

* keeps what stage s makes for its window, runs it, and goes on with (s + 1, t); or
* runs on from s to some s' - 1, keeps only the output of that one, does (s', t), then (s, s' - 1).

The first pass through the forward ops has to be paid by any plan, so here it is free, and has
tables of its own.
"""

from __future__ import annotations

import time
from itertools import accumulate
from typing import TypeAlias

import numpy
import numpy.typing

from memplan.solvers.chains._chain_costs import ChainCosts

Row: TypeAlias = numpy.typing.NDArray[numpy.int64]
NEVER = 1 << 60


class ChainProgram:
    """Extra nanoseconds for each segment and each amount of bytes.

    Args:
        costs: Of the stages.
        budget_bytes: The most that any segment can have.
        given_bytes: Of these, what is taken from the start to the end.
        slots: How finely bytes are divided.
        keep_whole_stages: Whether the first of the two choices above is open for s < t.
        deadline: Give up then; by `time.monotonic`.
    """

    def __init__(
        self,
        costs: ChainCosts,
        budget_bytes: int,
        given_bytes: int,
        slots: int,
        keep_whole_stages: bool,
        deadline: float,
    ) -> None:
        self.costs, self.given_bytes = costs, given_bytes
        self.keep_whole_stages = keep_whole_stages
        room_bytes = max(0, budget_bytes - given_bytes)
        self.unit_bytes = max(1, -(-room_bytes // slots))
        self.slots = room_bytes // self.unit_bytes
        self.stages = len(costs.forward_ns)
        self.until_ns = [0, *accumulate(costs.forward_ns)]
        self.again: dict[tuple[int, int], Row] = {}
        self.first: dict[int, Row] = {}
        self.complete = self._fill(deadline)

    def _fill(self, deadline: float) -> bool:
        last = self.stages - 1
        for length in range(self.stages):
            if time.monotonic() > deadline:
                return False
            for s in range(self.stages - length):
                self.again[s, s + length] = self._best(s, s + length, False)
        for s in range(last, -1, -1):
            self.first[s] = self._best(s, last, True)
        return True

    def _best(self, s: int, t: int, first: bool) -> Row:
        best = numpy.full(self.slots + 1, NEVER, dtype=numpy.int64)
        for split in self._choices(s, t):
            least, taken, cost_ns = self._terms(s, t, split, first)
            least = max(least, taken)
            if least > self.slots:
                continue
            best[least:] = numpy.minimum(
                best[least:], self._total(s, t, split, first, least, taken) + cost_ns
            )
        numpy.minimum(best, NEVER, out=best)
        return best

    def _choices(self, s: int, t: int) -> range:
        """Return splits s'; s itself stands for keeping what the window of s reads."""
        return range(s if self.keep_whole_stages or s == t else s + 1, t + 1)

    def _terms(self, s: int, t: int, split: int, first: bool) -> tuple[int, int, int]:
        """Return slots needed, slots taken from the segment on the right, and time."""
        costs = self.costs
        fixed = 0 if first else costs.fixed_bytes[t]
        if split == s:
            whole = costs.first_all_bytes[s] if first else costs.again_all_bytes[s] + fixed
            need = max(whole, costs.window_bytes[s])
            alone_ns = costs.saved_ns[s] if s == t else costs.both_ns[s]
            taken = 0 if s == t else self._slots_of(costs.saved_bytes[s])
            return self._beyond_given(need), taken, 0 if first else alone_ns
        begin = costs.first_bytes if first else costs.again_bytes
        beside = costs.first_beside_bytes if first else costs.again_beside_bytes
        need = fixed + max(begin[s], *beside[s + 1 : split], 0)
        taken = self._slots_of(costs.output_bytes[split - 1])
        run_ns = 0 if first else self.until_ns[split] - self.until_ns[s]
        return self._beyond_given(need), taken, run_ns

    def _total(self, s: int, t: int, split: int, first: bool, least: int, taken: int) -> Row:
        """Return the time of the parts, for the segment's slots from `least` on."""
        count = self.slots + 1 - least
        if split == s == t:
            return numpy.zeros(count, dtype=numpy.int64)
        right_from = s + 1 if split == s else split
        right = self.first[right_from] if first else self.again[right_from, t]
        total: Row = right[least - taken : least - taken + count].copy()
        if split > s:
            total += self.again[s, split - 1][least:]
        return total

    def split_of(self, s: int, t: int, slots: int, first: bool) -> tuple[int, int] | None:
        """Return the best s' and the slots of the segment on its right; None if none fits."""
        best_ns, chosen = NEVER, None
        for split in self._choices(s, t):
            least, taken, cost_ns = self._terms(s, t, split, first)
            if max(least, taken) > slots:
                continue
            total = cost_ns + self._total_at(s, t, split, first, slots, taken)
            if total < best_ns:
                best_ns, chosen = total, (split, slots - taken)
        return chosen

    def _total_at(self, s: int, t: int, split: int, first: bool, slots: int, taken: int) -> int:
        """Return the entry of `_total` for `slots`."""
        if split == s == t:
            return 0
        right_from = s + 1 if split == s else split
        right = self.first[right_from] if first else self.again[right_from, t]
        left_ns = int(self.again[s, split - 1][slots]) if split > s else 0
        return left_ns + int(right[slots - taken])

    def _slots_of(self, nbytes: int) -> int:
        return -(-nbytes // self.unit_bytes)

    def _beyond_given(self, nbytes: int) -> int:
        return self._slots_of(max(0, nbytes - self.given_bytes))
