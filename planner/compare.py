"""Asks several solvers the same questions, each in a process of its own.

A solver that fails, crashes or does not end is a row like any other: it cannot take the others
with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import Any

from memplan.errors import UsageError
from memplan.graph_capture.graph import Graph, Op, Tensor
from memplan.planner.minimum import minimum_budget
from memplan.planner.problem import Limits, Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate
from memplan.planner.solver import load_solver, solver_entry_points
from memplan.planner.tiers import Tier
from memplan.units import parse_budget

_GRACE_S = 15.0
"""How much longer than its limit a solver may take before its process is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """What one solver made of one budget.

    Attributes:
        solver: Its name.
        budget: The budget as it was asked for.
        budget_bytes: The budget in bytes.
        status: That of the solution (`optimal`, `feasible`, `infeasible`, `unknown`), or
            `failed` where the solver raised an error, or `timeout` where it did not end.
        overhead: Extra time as a share of the step that recomputes nothing, by `simulate`; None
            where there is no schedule.
        peak_bytes: Peak of the schedule; None where there is none.
        bound: No schedule of the captured order within the budget has a smaller `overhead`, by
            this solver's proof.
        seconds: Time of the solver.
        reason: Why there is no schedule, or a remark; one line.
    """

    solver: str
    budget: str
    budget_bytes: int
    status: str
    overhead: float | None = None
    peak_bytes: int | None = None
    bound: float = 0.0
    seconds: float = 0.0
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


Done = Callable[[ComparisonRow, int, int], None]
"""Called with a row, and with how many rows are done and how many there are."""


def compare(
    graph: Graph,
    budgets: Sequence[str | int],
    solvers: Sequence[str] | None = None,
    *,
    time_limit: float = 20.0,
    seed: int = 0,
    processes: int | None = None,
    tiers: Sequence[Tier] = (),
    done: Done | None = None,
) -> tuple[ComparisonRow, ...]:
    """Ask every solver for every budget; rows are sorted by budget, then as `solvers`.

    Args:
        graph: The training step.
        budgets: Each in bytes, as a size such as `"8GB"`, a share of the unplanned peak such as
            `"50%"`, or `"min"`.
        solvers: Names of installed solvers; None for all.
        time_limit: Seconds a solver may take for a budget.
        seed: Same seed, same plans.
        tiers: Where solvers may move tensors to.
        processes: How many run at once; None for one a core.
        done: Told each row when it is there, in any order.

    Raises:
        BudgetSyntaxError: A budget cannot be read.
        UnknownSolver: No installed package offers a solver of that name.
        UsageError: There is no budget or no solver.
    """
    names = list(solver_entry_points()) if solvers is None else list(dict.fromkeys(solvers))
    if not budgets or not names:
        raise UsageError("nothing to compare: name at least one budget and one solver")
    for name in names if solvers is not None else ():
        load_solver(name)
    _compile_once()
    questions = [(str(budget), _bytes_of(graph, budget)) for budget in budgets]
    text = graph.to_json()
    shared: dict[str, Any] = {"graph": text, "time_s": time_limit, "seed": seed}
    shared["tiers"] = [asdict(tier) for tier in tiers]
    jobs = [(b, name) for b in range(len(questions)) for name in names]
    rows: dict[tuple[int, str], ComparisonRow] = {}
    with ThreadPoolExecutor(processes or os.cpu_count() or 1) as pool:
        futures = {pool.submit(_ask, name, *questions[b], shared): (b, name) for b, name in jobs}
        for future in as_completed(futures):
            rows[futures[future]] = future.result()
            if done is not None:
                done(future.result(), len(rows), len(jobs))
    return tuple(rows[job] for job in jobs)


def _compile_once() -> None:
    """Have greedy replays compiled where they never were: no solver's time is to pay for it.

    The code is kept on disk, for all processes.
    """
    reads = ((), (0,), (1,), (0, 2))
    ops = tuple(
        Op(name=str(i), inputs=inputs, outputs=(i,), time_ns=1) for i, inputs in enumerate(reads)
    )
    tensors = tuple(Tensor(name=str(i), nbytes=nbytes) for i, nbytes in enumerate((1, 1, 1, 0)))
    # Two bytes hold only if the first op runs twice.
    problem = Problem(graph=Graph(ops=ops, tensors=tensors), budget_bytes=2)
    load_solver("greedy").solve(problem, Limits())


def _bytes_of(graph: Graph, budget: str | int) -> int:
    if isinstance(budget, str) and budget.strip().lower() == "min":
        return minimum_budget(graph).feasible_bytes
    plain = schedule_of(graph, range(len(graph.ops)))
    return parse_budget(budget, simulate(graph, plain).peak_bytes, 0)


def _ask(solver: str, budget: str, budget_bytes: int, shared: Mapping[str, Any]) -> ComparisonRow:
    """Run one solver in a process of its own; `shared` is what all of them are told."""
    job, time_s = {"solver": solver, "budget_bytes": budget_bytes, **shared}, shared["time_s"]
    began = time.monotonic()
    status, reason = "failed", ""
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "memplan.planner.compare_worker"],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            check=False,
            timeout=time_s + _GRACE_S,
        )
        if ended.returncode == 0:
            answer = json.loads(ended.stdout.splitlines()[-1])
            return ComparisonRow(solver=solver, budget=budget, budget_bytes=budget_bytes, **answer)
        last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        reason = f"its process ended with code {ended.returncode}: {last[0]}"
    except subprocess.TimeoutExpired:
        status, reason = "timeout", f"it did not end within {time_s + _GRACE_S:.0f} s"
    return ComparisonRow(
        solver=solver,
        budget=budget,
        budget_bytes=budget_bytes,
        status=status,
        seconds=time.monotonic() - began,
        reason=reason,
    )
