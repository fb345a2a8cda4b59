"""Chen's plans: the theorem on chains, and the two sets of candidates."""

from __future__ import annotations

import math

import pytest

from memplan.errors import UsageError
from memplan.graph_capture.graph import Graph
from memplan.planner.checkpoints import articulation_ops, candidate_ops, forward_end
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import Schedule
from memplan.planner.simulate import simulate
from memplan.planner.solver import Solver
from memplan.solvers.chains.chen_greedy import ChenGreedy
from memplan.solvers.chains.chen_sqrt import ChenSqrt
from memplan.solvers.chains.rotor import Rotor
from tests.graphs import chain, unet


def plan(solver: Solver, graph: Graph, budget_bytes: int) -> Schedule | None:
    return solver.solve(Problem(graph=graph, budget_bytes=budget_bytes), Limits()).schedule


@pytest.mark.parametrize("layers", [9, 16, 25, 49, 100])
@pytest.mark.parametrize("solver", [ChenSqrt(), ChenGreedy(), Rotor()], ids=lambda s: s.name)
def test_a_chain_in_root_n_slots_takes_at_most_one_more_forward_pass(
    solver: Solver, layers: int
) -> None:
    """Chen et al., section 4.2: about sqrt(n) checkpoints and one segment of as many.

    Beside them are the input, the gradient that is read and the one that is written, and the loss.
    """
    graph = chain(layers)
    root = math.isqrt(layers)
    found = plan(solver, graph, 2 * root + 4)
    assert found is not None
    forward_ns = sum(op.time_ns for op in graph.ops[: forward_end(graph)])
    assert simulate(graph, found).time_ns <= graph.time_ns + forward_ns


@pytest.mark.parametrize("solver", [ChenSqrt, ChenGreedy])
def test_both_is_the_cheaper_of_the_two(solver: type[ChenSqrt] | type[ChenGreedy]) -> None:
    graph = unet(3)
    budget_bytes = simulate(graph, plan(ChenSqrt(), graph, 10**6) or ()).peak_bytes
    found = {
        which: plan(solver(candidates=which), graph, budget_bytes)
        for which in ("both", "articulation", "all")
    }
    times_ns = {w: simulate(graph, s).time_ns for w, s in found.items() if s is not None}
    assert times_ns.pop("both") == min(times_ns.values())


def test_the_sets_of_candidates() -> None:
    """In a U-net the skips leave few ops without which it falls apart."""
    graph = unet(2)
    end = forward_end(graph)
    articulation, everything = candidate_ops(graph, end, "both")
    assert articulation == articulation_ops(graph, end)
    assert set(articulation) < set(everything) == set(range(end))
    assert candidate_ops(graph, end, "all") == (everything,)


def test_other_candidates_are_refused() -> None:
    with pytest.raises(UsageError, match="no candidates 'some'"):
        ChenSqrt(candidates="some")
