"""The largest batch that fits a budget, searched on predicted steps, confirmed on captured ones.

A capture takes many seconds, a prediction none: the search captures a few batch sizes and asks
of all others what lies on the line through two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from memplan.graph_capture.graph import Graph
from memplan.planner.batch_line import on_line
from memplan.planner.limits import lower_limit
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solver
from memplan.planner.verify import verify

_MOST = 2**20
_RESOLUTION = 50
"""The planned batch is exact to this part of itself: a solver's answer is no exacter."""


@dataclass
class BatchSearch:
    """Captures steps of some batch sizes, each once, and asks whether they fit.

    Attributes:
        capture: Returns the step of a batch size.
        budget_bytes: What must hold it.
        solver: Finds the plans.
        limits: Of each solve.
        most_extra_time: A plan that takes a larger share of extra time does not count.
        tried: Batch sizes that were captured, in order.
    """

    capture: Callable[[int], Graph]
    budget_bytes: int
    solver: Solver
    limits: Limits
    most_extra_time: float = float("inf")
    tried: list[int] = field(default_factory=list)
    _graphs: dict[int, Graph] = field(default_factory=dict)
    _planned: dict[int, bool] = field(default_factory=dict)
    _promised: dict[int, bool] = field(default_factory=dict)

    def graph(self, batch: int) -> Graph:
        """Return the step of a batch size."""
        if batch not in self._graphs:
            self._graphs[batch] = self.capture(batch)
            self.tried.append(batch)
        return self._graphs[batch]

    def unplanned_peak_bytes(self, batch: int) -> int:
        """Return the peak of the step with nothing recomputed."""
        graph = self.graph(batch)
        return simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes

    def fits_unplanned(self, batch: int) -> bool:
        """Whether the step fits as it is."""
        return self.unplanned_peak_bytes(batch) <= self.budget_bytes

    def fits_planned(self, batch: int) -> bool:
        """Whether the solver finds a plan that fits and does not take too long."""
        if batch not in self._planned:
            self._planned[batch] = self._ask(batch)
        return self._planned[batch]

    def _ask(self, batch: int) -> bool:
        return self.fits_unplanned(batch) or self._has_plan(self.graph(batch))

    def _has_plan(self, graph: Graph) -> bool:
        problem = Problem(graph=graph, budget_bytes=self.budget_bytes)
        if lower_limit(problem.graph)[0] > self.budget_bytes:
            return False
        solution = self.solver.solve(problem, self.limits)
        if solution.schedule is None:
            return False
        verify(problem, solution.schedule)
        extra = simulate(problem.graph, solution.schedule).time_ns / problem.graph.time_ns - 1
        return extra <= self.most_extra_time

    def _promises_plan(self, batch: int) -> bool:
        """Whether the predicted step has a plan; asks the captured one where none is predicted."""
        if batch not in self._promised:
            near = sorted(self._graphs, key=lambda known: (abs(known - batch), known))[:2]
            predicted = None
            if batch not in self._graphs and len(near) == 2:
                graphs = self._graphs[near[0]], self._graphs[near[1]]
                predicted = on_line(*graphs, (near[0], near[1]), batch)
            self._promised[batch] = (
                self.fits_planned(batch) if predicted is None else self._has_plan(predicted)
            )
        return self._promised[batch]

    def largest_unplanned(self, start: int) -> int:
        """Return the largest batch that fits without a plan; 0 where not even 1 does.

        The peak is close to a line in the batch size, so the line through two batches gives the
        guess from which the search starts.
        """
        first, second = start, 2 * start
        peaks = self.unplanned_peak_bytes(first), self.unplanned_peak_bytes(second)
        slope = (peaks[1] - peaks[0]) / (second - first)
        guess = start
        if slope > 0:
            guess = first + int((self.budget_bytes - peaks[0]) / slope)
        return largest(self.fits_unplanned, guess)

    def largest_planned(self, unplanned: int) -> int:
        """Return the largest batch that fits with a plan, to 2 % of itself.

        It is searched on the line through the largest unplanned step and one of twice the batch,
        and given back once a captured step of that batch is planned.
        """
        if not unplanned:
            return largest(self.fits_planned, 1)
        self.graph(2 * unplanned)
        low, high, step = unplanned, 2 * unplanned, 2 * unplanned
        while high < _MOST and self._promises_plan(high):
            low, high, step = high, high + step, 2 * step
        while high - low > max(1, low // _RESOLUTION):
            middle = (low + high) // 2
            if self._promises_plan(middle):
                low = middle
            else:
                high = middle
        while low > unplanned and not self.fits_planned(low):
            low = max(unplanned, low - max(1, low // _RESOLUTION))
        return low


def largest(holds: Callable[[int], bool], guess: int, least: int = 0) -> int:
    """Return the largest number for which `holds`, which holds up to some number and not above.

    It doubles its steps away from the guess until the answer is enclosed, then halves.

    Args:
        holds: The question; it is not asked for 0.
        guess: Where to start.
        least: It is known to hold for this number.
    """
    low, high = least, _MOST + 1
    at, step = min(max(guess, least + 1), _MOST), 1
    while low < at < high:
        if holds(at):
            low, at = at, at + step
        else:
            high, at = at, at - step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
