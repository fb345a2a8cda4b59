"""The rounding on its own, and what it makes of published instances."""

from __future__ import annotations

from functools import partial
from operator import le

import pytest

from memplan.errors import UsageError
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of, sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.verify import verify
from memplan.solvers.exhaustive import Exhaustive
from memplan.solvers.programs._stage_model import StageModel
from memplan.solvers.programs._stages import Stages
from memplan.solvers.programs.checkmate_lp import CheckmateLp, rounded
from tests.graphs import INSTANCES, chain, unit_chain


@pytest.mark.parametrize("budget_bytes", [4, 5])
def test_rounding_the_s_of_an_optimum_gives_the_optimum(budget_bytes: int) -> None:
    """R is unique for a given S: the fewest runs."""
    problem = Problem(graph=chain(5), budget_bytes=budget_bytes)
    best = Exhaustive(staged=True, fixed_order=True).solve(problem, Limits()).schedule
    assert best is not None
    model = StageModel(problem, Stages(problem.graph))
    point = model.start_values(best)
    assert point is not None
    values = {key: point[variable.name] for key, variable in model.s.items()}
    sequence = rounded(model.stages, values, partial(le, 0.5))
    assert len(sequence) == len(sequence_of(best))


def test_nothing_carried_means_running_everything_again_in_each_stage() -> None:
    """In `chain(3)` with S = 0: each stage runs all that its op is made from."""
    stages = Stages(chain(3))
    values = {(t, k): 0.0 for t, tensors in enumerate(stages.carried) for k in tensors}
    assert rounded(stages, values, partial(le, 0.5))[:6] == (0, 0, 1, 0, 1, 2)


@pytest.mark.parametrize(("length", "budget_bytes", "optimum_ns"), [(8, 4, 9), (10, 4, 14)])
def test_it_is_within_twice_the_extra_time_on_chains(
    length: int, budget_bytes: int, optimum_ns: int
) -> None:
    graph = unit_chain(length)
    problem = Problem(graph=graph, budget_bytes=budget_bytes)
    solution = CheckmateLp().solve(problem, Limits())
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    extra_ns = simulate(graph, solution.schedule).time_ns - graph.time_ns
    assert optimum_ns <= extra_ns <= 2 * optimum_ns


def test_one_rounding_alone() -> None:
    """Nine thresholds and any number of draws; with neither there would be no plan."""
    problem = Problem(graph=unit_chain(8), budget_bytes=5)
    for rounding, most in (("deterministic", 9), ("random", 20)):
        solution = CheckmateLp(rounding=rounding).solve(problem, Limits())
        assert solution.stats["plans"] == most
    with pytest.raises(UsageError, match="no rounding 'up'"):
        CheckmateLp(rounding="up")


@pytest.mark.slow
@pytest.mark.skipif(not INSTANCES.is_dir(), reason="no published instances beside the checkout")
@pytest.mark.parametrize(("percent", "known"), [(90, 0.0), (80, 0.1)])
def test_published_figures_of_fcn8(percent: int, known: float) -> None:
    """The paper on Moccasin reports 0.0 and 0.1 %, rounded; here within half a point."""
    graph = read_graph(INSTANCES / "cm_cm1.json")
    peak_bytes = simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes
    problem = Problem(graph=graph, budget_bytes=peak_bytes * percent // 100)
    solution = CheckmateLp().solve(problem, Limits())
    assert solution.schedule is not None
    verify(problem, solution.schedule)
    extra = 100 * (simulate(graph, solution.schedule).time_ns / graph.time_ns - 1)
    assert extra == pytest.approx(known, abs=0.5)
