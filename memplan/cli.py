"""The command `memplan`. Results go to stdout, all else to stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from memplan.errors import MemplanError
from memplan.planner.solver import load_solver, solver_entry_points

if TYPE_CHECKING:
    from memplan.codegen.check import Check
    from memplan.model_file import ModelFile
    from memplan.planner.plan import Plan

app = typer.Typer(
    name="memplan",
    help="Plan and compile PyTorch training steps that fit a memory budget.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Budget = Annotated[str, typer.Option(help="8GB, 7.5GiB, 50%, a number of bytes, or min.")]
Solver = Annotated[str, typer.Option(help="Name of a solver; see `memplan solvers`.")]
TimeLimit = Annotated[float, typer.Option(min=0.01, help="Seconds the solver may take.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Device = Annotated[str | None, typer.Option(help="Device to plan for, such as cpu.")]
Optimizer = Annotated[str | None, typer.Option(help="Count its state, such as adamw.")]


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    context.obj = {"debug": debug}


@app.command(name="compile")
def compile_(
    file: Annotated[Path, typer.Argument(help="Python file that defines model() and more.")],
    budget: Budget,
    solver: Solver = "auto",
    device: Device = None,
    profile: Annotated[str, typer.Option(help="measured or analytic.")] = "measured",
    optimizer: Optimizer = None,
    time_limit: TimeLimit = 60.0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Run a step both ways.")] = False,
    as_json: Json = False,
) -> None:
    """Plan the training step of the model in FILE so that it fits a memory budget."""
    from memplan.model_file import read_model_file

    _check_solver(solver)
    with _stages() as stages:
        stages("capturing", 0, 0)
        model_file = read_model_file(file)
        module = _compile(
            model_file,
            budget=budget,
            solver=solver,
            device=device,
            profile=profile,
            optimizer=optimizer or model_file.optimizer,
            time_limit=time_limit,
            progress=stages,
        )
        stages("checking", 0, 0)
        check = _verify(module, model_file, optimizer) if verify else None
    if output is not None:
        module.save(output)
    seconds = stages.seconds | {"solving": module.plan.solve_seconds}
    _print_plan(module.plan, seconds, check, as_json=as_json)
    if output is not None:
        _say(f"written to {output}; use it with memplan.load({str(output)!r}, model)")
    if check is not None and not check.identical:
        raise MemplanError("the planned step differs from the unplanned one; please report this")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Folder that `memplan compile -o` wrote.")],
    as_json: Json = False,
) -> None:
    """Show the plan in FOLDER."""
    from memplan.codegen.artifacts import PLAN_FILE
    from memplan.planner.plan import Plan

    plan = Plan.load(folder / PLAN_FILE)
    _print_plan(plan, {"solving": plan.solve_seconds}, None, as_json=as_json)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="Folder that `memplan compile -o` wrote.")],
    file: Annotated[Path, typer.Argument(help="Python file that defines the model.")],
    optimizer: Optimizer = None,
    as_json: Json = False,
) -> None:
    """Run the model in FILE by the plan in FOLDER, and compare it with the unplanned step."""
    from memplan import api
    from memplan.model_file import read_model_file

    model_file = read_model_file(file)
    module = api.load(folder, model_file.model, loss=model_file.loss)
    module.plan_for(*model_file.args, **model_file.kwargs)
    result = _verify(module, model_file, optimizer)
    seconds = {"solving": module.plan.solve_seconds}
    _print_plan(module.plan, seconds, result, as_json=as_json)


@app.command()
def solve(
    graph: Annotated[Path, typer.Argument(help="Graph as JSON: ours, or sizes, costs, edges.")],
    budget: Budget,
    solver: Solver = "auto",
    time_limit: TimeLimit = 30.0,
    as_json: Json = False,
) -> None:
    """Plan a graph from a file."""
    from memplan.graph_capture.graph_files import read_graph
    from memplan.planner.pipeline import make_plan
    from memplan.planner.problem import Limits

    _check_solver(solver)
    plan = make_plan(read_graph(graph), budget, solver=solver, limits=Limits(time_s=time_limit))
    if as_json:
        _print_json(_solve_result(plan))
    else:
        _print_plan(plan, {"solving": plan.solve_seconds}, None, as_json=False)


@app.command()
def solvers(as_json: Json = False) -> None:
    """List the installed solvers."""
    from rich.table import Table

    rows = [_describe_solver(name) for name in solver_entry_points()]
    if as_json:
        _print_json(rows)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "kind", "source"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["kind"], row["source"])
    _out().print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for an error, 3 for infeasible."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        result = app(args=arguments, standalone_mode=False, prog_name="memplan")
        return result if isinstance(result, int) else 0
    except MemplanError as error:
        if "--debug" in arguments:
            raise
        _say(f"memplan: {error}")
        return error.exit_code
    except click.ClickException as error:
        _say(f"memplan: {error.format_message()}")
        return 2
    except (click.exceptions.Abort, KeyboardInterrupt):
        _say("memplan: stopped")
        return 130


class _Stages:
    """Shows what is going on, where someone watches, and notes how long it took."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)
        self._name = ""
        self._since = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        """Take note that `done` of `total` parts of stage `name` are done."""
        if name != self._name:
            self.finish()
            self._name, self._since = name, time.perf_counter()
        self._bar.update(
            self._task, description=name, completed=done, total=total if total else None
        )

    def finish(self) -> None:
        """Note the time of the stage that ends."""
        if self._name:
            spent = time.perf_counter() - self._since
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + spent
        self._name = ""


@contextmanager
def _stages() -> Iterator[_Stages]:
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        stages = _Stages(bar)
        yield stages
        stages.finish()


def _compile(model_file: ModelFile, **settings: Any) -> Any:
    from memplan import api

    return api.compile(
        model_file.model, model_file.args, model_file.kwargs, loss=model_file.loss, **settings
    )


def _verify(module: Any, model_file: ModelFile, optimizer: str | None) -> Check:
    from memplan.codegen.check import check
    from memplan.graph_capture.optimizer_state import optimizer_named

    make: Callable[..., Any] | None = model_file.optimizer
    if optimizer is not None:
        make = optimizer_named(optimizer)
    return check(
        module, model_file.args, model_file.kwargs, optimizer=make, steps=2, timed_steps=0
    )


def _check_solver(name: str) -> None:
    """Refuse a misspelt solver before anything takes time."""
    load_solver(name)


def _describe_solver(name: str) -> dict[str, Any]:
    solver = load_solver(name)
    return {
        "name": name,
        "kind": solver.kind,
        "exact": solver.kind == "exact",
        "source": solver.source,
        "may": ["keep", "recompute"],
        "available": True,
    }


def _solve_result(plan: Plan) -> dict[str, Any]:
    from memplan.planner.schedule import sequence_of

    return {
        "cost": plan.planned_time_ns,
        "peak": plan.planned_peak_bytes,
        "proven_bound": plan.proven_bound_ns,
        "model_bound": plan.model_bound_ns,
        "status": plan.status.value,
        "seconds": plan.solve_seconds,
        "solver": plan.solver,
        "sequence": list(sequence_of(plan.schedule)),
    }


def _plan_result(plan: Plan, seconds: dict[str, float], check: Check | None) -> dict[str, Any]:
    result: dict[str, Any] = plan.summary()
    result["bytes"] = result.pop("bytes_at_peak")
    result["ops"] = len(plan.graph.ops)
    result["tensors"] = len(plan.graph.tensors)
    result["solve_seconds"] = plan.solve_seconds
    result["capture_seconds"] = seconds.get("capturing", 0.0)
    result["profile_seconds"] = seconds.get("profiling operations", 0.0)
    result["notes"] = list(plan.notes)
    if check is not None:
        result["verify"] = {
            "measured_peak_bytes": check.measured_peak_bytes,
            "unplanned_measured_peak_bytes": check.unplanned_measured_peak_bytes,
            "step_time_ratio": check.step_time_ratio,
            "gradients_identical": check.gradients_identical,
            "losses_identical": check.losses_identical,
            "state_identical": check.state_identical,
        }
    return result


def _print_plan(
    plan: Plan, seconds: dict[str, float], check: Check | None, *, as_json: bool
) -> None:
    from memplan.tables import check_table, plan_table

    if as_json:
        _print_json(_plan_result(plan, seconds, check))
        return
    _out().print(plan_table(plan, seconds))
    if check is not None:
        _out().print("", check_table(check))


def _out() -> Console:
    return Console(highlight=False)


def _print_json(value: Any) -> None:
    print(json.dumps(value))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
