"""MONeT's model against Checkmate's, restricted to the same schedules, and published optima."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from memplan.planner.checkpoints import forward_end
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import sequence_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution, Status
from memplan.planner.verify import verify
from memplan.solvers.programs._milp import Outcome, solve_milp
from memplan.solvers.programs._monet_model import MonetModel
from memplan.solvers.programs._stage_model import StageModel
from memplan.solvers.programs._stages import Stages
from memplan.solvers.programs.monet import Monet
from tests.graphs import chain, tight_problems, unit_chain


def solve(problem: Problem, solver: Monet | None = None) -> Solution:
    solution = (solver or Monet()).solve(problem, Limits(time_s=30))
    if solution.schedule is not None:
        verify(problem, solution.schedule)
    return solution


@pytest.mark.parametrize(("length", "budget_bytes", "extra_ns"), [(8, 4, 9), (10, 4, 14)])
def test_published_optima_of_the_unit_chain(length: int, budget_bytes: int, extra_ns: int) -> None:
    problem = Problem(graph=unit_chain(length), budget_bytes=budget_bytes)
    solution = solve(problem)
    assert solution.schedule is not None
    assert simulate(problem.graph, solution.schedule).time_ns == problem.graph.time_ns + extra_ns


@settings(deadline=None, max_examples=60)
@given(tight_problems())
def test_it_is_checkmate_without_recomputing_in_or_of_other_places(problem: Problem) -> None:
    """Checkmate's R fixed at 0 before the end of the forward pass, and for backward ops."""
    end = forward_end(problem.graph)
    other = StageModel(problem, Stages(problem.graph))
    for (t, i), r in other.r.items():
        if t < end or i >= end:
            r.upBound = 0
    known = solve_milp(other.problem, 30.0, 1, 0)
    solution = solve(problem, Monet(starts=()))
    if known.outcome is Outcome.INFEASIBLE:
        assert solution.schedule is None
        return
    assert known.outcome is Outcome.OPTIMAL
    assert solution.schedule is not None
    best_ns = simulate(problem.graph, other.schedule(known.values)).time_ns
    assert simulate(problem.graph, solution.schedule).time_ns == best_ns


@settings(deadline=None, max_examples=60)
@given(tight_problems())
def test_a_schedule_of_the_model_is_a_point_of_it(problem: Problem) -> None:
    """What the model found can be handed back as a start, and keeps all rows."""
    solution = solve(problem, Monet(starts=()))
    if solution.schedule is None or solution.status is Status.OPTIMAL:
        return
    model = MonetModel(problem, forward_end(problem.graph))
    values = model.start_values(solution.schedule)
    assert values is not None
    for variable in model.problem.variables():
        variable.setInitialValue(values[variable.name])
    assert model.problem.valid(1e-6)
    assert sequence_of(model.schedule(values)) == sequence_of(solution.schedule)


def test_large_graphs_are_refused() -> None:
    solution = solve(Problem(graph=chain(5), budget_bytes=5), Monet(max_ops=3))
    assert (solution.status, solution.reason) == (Status.UNKNOWN, "11 ops are more than 3")
