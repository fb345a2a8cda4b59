"""The union-find of DTR's score h_eq: sets of evicted tensors that depend on one another."""

from __future__ import annotations

from collections.abc import Iterable

from memplan.solvers.online._online import OnlineRun


class EvictedSets:
    """Sets of evicted tensors that depend on one another, with the time of each set.

    A tensor that is made again takes its own time out of its set; sets are never split.
    """

    def __init__(self, run: OnlineRun) -> None:
        self.run = run
        self.node: dict[int, int] = {}
        """For each evicted tensor its node."""
        self.parent: list[int] = []
        self.total_ns: list[int] = []

    def add(self, t: int) -> None:
        """Note that `t` is evicted."""
        node = self.node[t] = len(self.parent)
        self.parent.append(node)
        self.total_ns.append(self.run.cost_ns(t))
        for root in self._roots(t):
            self.parent[root] = node
            self.total_ns[node] += self.total_ns[root]

    def remove(self, t: int) -> None:
        """Note that `t` is there again."""
        if t in self.node:
            self.total_ns[self._find(self.node.pop(t))] -= self.run.cost_ns(t)

    def neighbour_cost_ns(self, t: int) -> int:
        """Return the time of all sets that `t` would join."""
        return sum(self.total_ns[root] for root in self._roots(t))

    def _roots(self, t: int) -> Iterable[int]:
        near = (*self.run.neighbours(t, False), *self.run.neighbours(t, True))
        return {self._find(self.node[u]): None for u in near if u in self.node and u != t}

    def _find(self, node: int) -> int:
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node
