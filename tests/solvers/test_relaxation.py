from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.planner.checkpoints import sequence_losing
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import Status
from memplan.planner.verify import verify
from memplan.solvers._proof import Prover, prove, scarce_ops
from memplan.solvers._relaxation import Relaxation
from memplan.solvers.exhaustive import Exhaustive
from memplan.solvers.programs._milp import Outcome
from memplan.solvers.programs._stages import Stages
from tests.graphs import chain, detour, tight_problems, unet
from tests.small_graphs import hourglass


def optimum_ns(problem: Problem) -> float:
    """The time of the fastest schedule of the captured order; infinite where there is none."""
    solution = Exhaustive(fixed_order=True).solve(problem, Limits())
    if solution.schedule is None:
        assert solution.status is Status.INFEASIBLE
        return float("inf")
    return simulate(problem.graph, solution.schedule).time_ns


@pytest.mark.parametrize(("budget_bytes", "extra_ns"), [(153, 0), (152, 10), (104, 10)])
def test_hourglass_by_hand(budget_bytes: int, extra_ns: int) -> None:
    """`big` cannot stay while `widen` runs with less than 153 bytes, so `grow` runs again."""
    proof = prove(Problem(graph=hourglass(), budget_bytes=budget_bytes), Limits())
    assert proof.bound_ns == 15 + extra_ns


def test_what_the_budget_cannot_hold_has_a_small_factor() -> None:
    proof = prove(Problem(graph=hourglass(), budget_bytes=104), Limits())
    names = [t.name for t in hourglass().tensors]
    assert proof.leans[0][names.index("big")] < 1


@pytest.mark.parametrize(("budget_bytes", "extra_ns"), [(6, 0), (5, 1), (4, 3)])
def test_chain_of_four(budget_bytes: int, extra_ns: int) -> None:
    # The optima of test_exhaustive.
    proof = prove(Problem(graph=chain(4), budget_bytes=budget_bytes), Limits())
    assert proof.bound_ns == 9 + extra_ns


def test_the_order_within_a_window_does_not_matter() -> None:
    """The only schedules run a, A, c, C out of order; the bound must not exclude them."""
    for budget_bytes in range(10, 20):
        problem = Problem(graph=detour(), budget_bytes=budget_bytes)
        assert prove(problem, Limits()).bound_ns <= optimum_ns(problem)


def test_a_proven_minimum_is_one() -> None:
    graph = unet(2)
    for budget_bytes in range(8, 60):
        problem = Problem(graph=graph, budget_bytes=budget_bytes)
        minimum_bytes = prove(problem, Limits()).minimum_bytes
        if minimum_bytes is not None:
            below = Problem(graph=graph, budget_bytes=minimum_bytes - 1)
            assert budget_bytes < minimum_bytes
            assert optimum_ns(below) == float("inf")


@settings(deadline=None, max_examples=250)
@given(tight_problems())
def test_no_schedule_beats_the_bound(problem: Problem) -> None:
    proof = prove(problem, Limits())
    best_ns = optimum_ns(problem)
    assert proof.bound_ns <= best_ns
    if proof.minimum_bytes is not None:
        assert best_ns == float("inf")


@settings(deadline=None, max_examples=250)
@given(tight_problems(), st.data())
def test_any_instants_give_a_bound(problem: Problem, data: st.DataObject) -> None:
    instants = data.draw(st.sets(st.integers(1, len(problem.graph.ops)), max_size=4))
    relaxation = Relaxation(problem, Stages(problem.graph), sorted(instants))
    best_ns = optimum_ns(problem)
    linear = relaxation.program.relax(10.0)
    whole = relaxation.program.solve(10.0)
    if Outcome.INFEASIBLE in (linear.outcome, whole.outcome):
        assert best_ns == float("inf")
        return
    linear_ns = relaxation.bound_ns(linear, integral=False)
    assert linear_ns <= relaxation.bound_ns(whole, integral=True) <= best_ns


def test_scarce_ops_start_with_the_peak() -> None:
    # Kept in order, hourglass peaks at widen, op 3; with 152 bytes nothing else is over.
    assert scarce_ops(Problem(graph=hourglass(), budget_bytes=152)) == [3]
    assert scarce_ops(Problem(graph=hourglass(), budget_bytes=153)) == []


def test_what_goes_at_the_scarcest_instant_is_the_optimal_plan() -> None:
    # a1 goes while the loss runs; f1 runs again for b2: one op more, as the optimum above.
    graph = chain(4)
    drops = Prover(Problem(graph=graph, budget_bytes=5), Limits()).look(1.0, 10.0)
    assert drops is not None
    timeline = simulate(graph, schedule_of(graph, sequence_losing(graph, drops.lost, drops.end)))
    assert (timeline.peak_bytes, timeline.time_ns) == (5, 10)


@settings(deadline=None, max_examples=250)
@given(tight_problems(), st.sampled_from((1.0, 0.9, 0.6, 0.3)), st.data())
def test_what_goes_can_always_be_made_again(
    problem: Problem, share: float, data: st.DataObject
) -> None:
    graph = problem.graph
    kept = data.draw(st.frozensets(st.integers(0, len(graph.tensors) - 1), max_size=3))
    drops = Prover(problem, Limits()).look(share, 10.0, kept)
    if drops is None:
        return
    assert not any(drops.lost[t] for t in kept)
    schedule = schedule_of(graph, sequence_losing(graph, drops.lost, drops.end))
    peak_bytes = simulate(graph, schedule).peak_bytes
    verify(Problem(graph=graph, budget_bytes=peak_bytes), schedule)
