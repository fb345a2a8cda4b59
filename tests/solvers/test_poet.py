"""POET's choices by hand, and its model against Checkmate's."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from memplan.graph_capture.graph import Graph
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of, sequence_of, swaps_in
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solution
from memplan.planner.tiers import Tier
from memplan.planner.verify import verify
from memplan.solvers.programs._milp import Outcome, solve_milp
from memplan.solvers.programs._poet_model import PoetModel
from memplan.solvers.programs._stage_model import StageModel
from memplan.solvers.programs._stages import Stages
from memplan.solvers.programs.poet import Poet
from tests.graphs import chain, tight_problems


def tier(bytes_per_ns: float, capacity_bytes: int = 10**12) -> Tier:
    speed = round(bytes_per_ns * 10**9)
    return Tier(
        name="disk",
        capacity_bytes=capacity_bytes,
        write_bytes_per_s=speed,
        read_bytes_per_s=speed,
    )


def solve(solver: Poet, problem: Problem) -> Solution:
    solution = solver.solve(problem, Limits(time_s=20.0))
    if solution.schedule is not None:
        verify(problem, solution.schedule)
    return solution


def below_peak(graph: Graph, nbytes: int, where: Tier) -> Problem:
    peak_bytes = simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes
    return Problem(graph=graph, budget_bytes=peak_bytes - nbytes, tiers=(where,))


def test_the_dearer_of_pages_and_runs_is_not_chosen() -> None:
    """One tensor of 10 bytes is too many: a run takes 10, two pages 2 * 10 / speed."""
    graph = chain(6, nbytes=10, time_ns=10)
    fast = solve(Poet(), below_peak(graph, 10, tier(10.0)))
    assert fast.schedule is not None
    assert swaps_in(fast.schedule)
    assert sequence_of(fast.schedule) == tuple(range(len(graph.ops)))
    slow = solve(Poet(), below_peak(graph, 10, tier(1.0)))
    assert slow.schedule is not None
    assert not swaps_in(slow.schedule)
    assert simulate(graph, slow.schedule).time_ns == graph.time_ns + 10


def test_power_and_the_limit_on_time_count() -> None:
    graph = chain(6, nbytes=10, time_ns=10)
    problem = below_peak(graph, 10, tier(1.0))
    for solver in (Poet(page_power=0.1), Poet(longest=1.0)):
        solution = solve(solver, problem)
        assert solution.schedule is not None
        assert swaps_in(solution.schedule)


def test_a_second_memory_without_room_is_not_used() -> None:
    graph = chain(6, nbytes=10, time_ns=10)
    solution = solve(Poet(), below_peak(graph, 10, tier(10.0, capacity_bytes=9)))
    assert solution.schedule is not None
    assert not swaps_in(solution.schedule)


@settings(deadline=None, max_examples=40)
@given(tight_problems(max_ops=8))
def test_with_pages_that_cost_too_much_it_is_checkmate(problem: Problem) -> None:
    """And free pages cost no more than dear ones."""
    graph, stages = problem.graph, Stages(problem.graph)
    checkmate = StageModel(problem, stages)
    known = solve_milp(checkmate.problem, 20.0, 1, 0)
    if known.outcome is Outcome.INFEASIBLE:
        return
    assert known.outcome is Outcome.OPTIMAL
    known_ns = simulate(graph, checkmate.schedule(known.values)).time_ns
    times_ns = [op.time_ns for op in graph.ops]
    paged = replace(problem, tiers=(tier(1.0),))
    for price in (10**6, 0):
        prices = dict.fromkeys(stages.tensors, price)
        model = PoetModel(paged, stages, times_ns, prices, prices)
        result = solve_milp(model.problem, 20.0, 1, 0)
        assert result.outcome is Outcome.OPTIMAL
        sequence, moves = model.paged(result.values)
        time_ns = sum(times_ns[i] for i in sequence)
        if price:
            assert not moves
            assert time_ns == known_ns
        assert time_ns <= known_ns
