"""An online run whose tensors have addresses: an output needs bytes in one piece."""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Iterator

from memplan.planner.problem import Problem
from memplan.solvers.online._online import Dealloc, OnlineRun

TEMPORARY = -1
"""The owner of what is free again once the op that runs has ended."""


class Arena:
    """Blocks in one piece of memory.

    Attributes:
        size_bytes: Of the whole arena.
        blocks: (offset, bytes, owner), sorted; an owner is a tensor or `TEMPORARY`.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.blocks: list[tuple[int, int, int]] = []

    def holes(self) -> Iterator[tuple[int, int]]:
        """Yield offset and bytes of each hole, from the left."""
        at = 0
        for offset, nbytes, _ in self.blocks:
            if offset > at:
                yield at, offset - at
            at = offset + nbytes
        if at < self.size_bytes:
            yield at, self.size_bytes - at

    def free_beside(self, owner: int) -> int:
        """Return the bytes of the holes on both sides of an owner's block."""
        at = next(k for k, block in enumerate(self.blocks) if block[2] == owner)
        offset, nbytes, _ = self.blocks[at]
        left = sum(self.blocks[at - 1][:2]) if at else 0
        right = self.blocks[at + 1][0] if at + 1 < len(self.blocks) else self.size_bytes
        return offset - left + right - offset - nbytes

    def place(self, owner: int, nbytes: int, from_right: bool, best_fit: bool) -> bool:
        """Put a block into a hole: the smallest that fits, or the first from one side."""
        fitting = [hole for hole in self.holes() if hole[1] >= nbytes]
        if not fitting:
            return False
        if best_fit:
            offset, room = min(fitting, key=lambda hole: (hole[1], hole[0]))
        else:
            offset, room = fitting[-1 if from_right else 0]
        insort(self.blocks, (offset + (room - nbytes if from_right else 0), nbytes, owner))
        return True

    def free(self, owner: int) -> None:
        """Take out all blocks of an owner."""
        self.blocks = [block for block in self.blocks if block[2] != owner]


class AddressRun(OnlineRun):
    """Evicts until every output of an op has its place.

    What is given and what is pinned lies outside of the arena: pinned outputs have a place of
    their own from the start, so that they cannot fragment it.
    """

    best_fit = True

    def __init__(self, problem: Problem, dealloc: Dealloc, deadline: float) -> None:
        super().__init__(problem, dealloc, deadline)
        pinned_bytes = sum(
            self.sizes[t]
            for op in self.graph.ops
            for t in op.outputs
            if self.graph.tensors[t].pinned
        )
        self.arena = Arena(self.budget_bytes - self.graph.given_bytes - pinned_bytes)

    @abstractmethod
    def victims(self, need_bytes: int) -> list[int]:
        """Return tensors to evict, so that a hole of `need_bytes` comes nearer; none if stuck."""

    def choose(self, need_bytes: int) -> int:
        """Return the first of the victims."""
        return next(iter(self.victims(need_bytes)), -1)

    def from_right(self, t: int) -> bool:
        """Return whether `t` is placed from the right end of the arena."""
        return False

    def make_room(self, op: int, need_bytes: int, again: bool) -> bool:
        """Place every output and the workspace of `op`."""
        self.arena.free(TEMPORARY)
        placed: list[int] = []
        for owner, nbytes in self._requests(op, again):
            side = owner != TEMPORARY and self.from_right(owner)
            while not self.arena.place(owner, nbytes, side, self.best_fit):
                gone = self.victims(nbytes)
                if not gone:
                    for t in placed:
                        self.arena.free(t)
                    return False
                for t in gone:
                    self.evict(t)
            placed.append(owner)
        return True

    def on_drop(self, t: int) -> None:
        """Free the place of `t`."""
        self.arena.free(t)

    def _requests(self, op: int, again: bool) -> list[tuple[int, int]]:
        """Return owners and bytes, the largest first."""
        requests = [(t, self.sizes[t]) for t in self.outputs[op]]
        for t in self.graph.ops[op].outputs:
            if not self.movable[t] and (again or not self.graph.tensors[t].pinned):
                requests.append((TEMPORARY, self.sizes[t]))
        requests.append((TEMPORARY, self.graph.ops[op].workspace_bytes))
        return sorted((r for r in requests if r[1]), key=lambda r: (-r[1], r[0]))
