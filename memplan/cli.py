"""The command `memplan`. Results go to stdout, all else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memplan.commands import COMMANDS
from memplan.commands.model_step import budget_of_device, is_here, profile_for, read_file
from memplan.commands.options import (
    GET_BUDGET,
    GET_DEVICE,
    GET_GAP,
    GET_JSON,
    GET_OFFLINE,
    GET_OPTIMIZER,
    GET_PROFILE,
    GET_SOLVER,
    PATH,
    get_time_limit,
)
from memplan.errors import MemplanError, UsageError
from memplan.planner.solver import load_solver, solver_entry_points
from memplan.progress import Stages, quiet, stages_shown
from memplan.results import print_json
from memplan.swap_options import swap_options

if TYPE_CHECKING:
    from memplan.codegen.check import Check
    from memplan.codegen.optimized_module import OptimizedModule
    from memplan.model_file import ModelFile
    from memplan.planner.plan import Plan

_SLOW_STEP_NS = 4_000_000_000
"""Steps that take longer are checked once, others twice."""


class _Commands(click.Group):
    """Commands by name; a name that is none of them is answered with the closest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean {close[0]!r}?" if close else "see `memplan --help`"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 90},
    epilog="Example: memplan compile examples/gpt2.py --budget 50% --verify",
)
@click.version_option(package_name="memplan", message="memplan %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; goes anywhere.")
def app(debug: bool) -> None:
    """Plan and compile PyTorch training steps that fit a memory budget."""


@app.command(
    name="compile",
    short_help="Plan the training step of a model.",
    epilog="Example: memplan compile examples/gpt2.py --budget 50% -o gpt2-plan",
)
@click.argument("file", type=PATH)
@GET_BUDGET
@GET_SOLVER
@GET_DEVICE
@GET_PROFILE
@GET_OFFLINE
@GET_OPTIMIZER
@get_time_limit(60.0)
@GET_GAP
@swap_options
@click.option("-o", "--output", type=PATH, metavar="FOLDER", help="Write plan and code there.")
@click.option("--verify", is_flag=True, help="Run steps with and without the plan and compare.")
@GET_JSON
def compile_(
    file: Path,
    budget: str,
    solver: str,
    device: str | None,
    profile: str | None,
    offline: bool,
    optimizer: str | None,
    time_limit: float,
    gap: float,
    output: Path | None,
    verify: bool,
    as_json: bool,
    swapping: dict[str, Any],
) -> None:
    """Plan the training step of the model in FILE so that it fits a memory budget.

    FILE is Python and defines model() and example_inputs(), and may define
    loss(output, *targets) and optimizer(params); the files in examples/ do.
    """
    load_solver(solver)
    _check_output(output)
    if offline and verify:
        raise UsageError("a model that is captured --offline has no weights to --verify with")
    budget_of_device(budget, device)
    with stages_shown() as stages, redirect_stdout(sys.stderr):
        stages("capturing", 0, 0)
        offline = offline or not (verify or is_here(device))
        model_file = read_file(file, offline=offline)
        module = _compile(
            model_file,
            budget=budget,
            solver=solver,
            device=device,
            profile=profile_for(profile, device, offline=offline),
            optimizer=optimizer or model_file.optimizer,
            time_limit=time_limit,
            gap=gap,
            progress=stages,
            watch=stages.watch,
            **swapping,
        )
        check = _verify(module, model_file, optimizer, stages) if verify else None
        if output is not None:
            module.save(output)
    seconds = stages.seconds | {"solving": module.plan.solve_seconds}
    _print_plan(module.plan, seconds, check, as_json=as_json)
    if offline:
        _say("captured without weights; run the plan where the model is: memplan.load")
    if output is not None:
        _say(f"written to {output}; use it with memplan.load({str(output)!r}, model)")
    _refuse_difference(check)


@app.command(short_help="Show a plan that was written.", epilog="Example: memplan show gpt2-plan")
@click.argument("folder", type=PATH)
@GET_JSON
def show(folder: Path, as_json: bool) -> None:
    """Show the plan in FOLDER, which `memplan compile -o` wrote."""
    from memplan.codegen.artifacts import PLAN_FILE
    from memplan.planner.plan import Plan

    path = folder if folder.is_file() else folder / PLAN_FILE
    if not path.exists():
        raise UsageError(
            f"there is no plan in {folder}; write one with `memplan compile FILE -o {folder}`"
        )
    plan = Plan.load(path)
    _print_plan(plan, {"solving": plan.solve_seconds}, None, as_json=as_json)


@app.command(
    short_help="Run a model by a plan and compare.",
    epilog="Example: memplan check gpt2-plan examples/gpt2.py",
)
@click.argument("folder", type=PATH)
@click.argument("file", type=PATH)
@GET_OPTIMIZER
@GET_JSON
def check(folder: Path, file: Path, optimizer: str | None, as_json: bool) -> None:
    """Run the model in FILE by the plan in FOLDER and compare with the unplanned step."""
    from memplan import api

    with stages_shown() as stages, redirect_stdout(sys.stderr):
        stages("capturing", 0, 0)
        model_file = read_file(file)
        module = api.load(folder, model_file.model, loss=model_file.loss)
        module.plan_for(*model_file.args, **model_file.kwargs)
        result = _verify(module, model_file, optimizer, stages)
    _print_plan(module.plan, stages.seconds, result, as_json=as_json)
    _refuse_difference(result)


@app.command(
    short_help="Plan a graph from a file.",
    epilog="Example: memplan solve graph.json --budget 8GB --json",
)
@click.argument("graph", type=PATH)
@GET_BUDGET
@GET_SOLVER
@get_time_limit(30.0)
@GET_GAP
@GET_JSON
def solve(
    graph: Path, budget: str, solver: str, time_limit: float, gap: float, as_json: bool
) -> None:
    """Plan the graph in the JSON file GRAPH.

    It is what Graph.to_json() wrote, or has the keys sizes, costs and edges.
    """
    from memplan.graph_capture.graph_files import read_graph
    from memplan.planner.pipeline import make_plan
    from memplan.planner.problem import Limits
    from memplan.results import solve_result

    load_solver(solver)
    with stages_shown() as stages, redirect_stdout(sys.stderr):
        stages("solving", 0, 0)
        limits = Limits(time_s=time_limit, gap=gap, watch=stages.watch)
        plan = make_plan(read_graph(graph), budget, solver=solver, limits=limits)
    if as_json:
        print_json(solve_result(plan))
    else:
        _print_plan(plan, {"solving": plan.solve_seconds}, None, as_json=False)


@app.command(short_help="List the installed solvers.", epilog="Example: memplan solvers")
@GET_JSON
def solvers(as_json: bool) -> None:
    """List the installed solvers, built in or from other packages."""
    from memplan.results import solver_result
    from memplan.tables import print_plainly, solver_table

    rows = [solver_result(name) for name in solver_entry_points()]
    if as_json:
        print_json(rows)
    else:
        print_plainly(solver_table(rows))


for command in COMMANDS:
    app.add_command(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 is success, 2 an error of the user or the model, 3 an infeasible budget, 1 a bug of ours.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = [argument for argument in given if argument != "--debug"] or ["--help"]
    debug = "--debug" in given
    try:
        with nullcontext() if debug else quiet():
            result = app(args=arguments, standalone_mode=False, prog_name="memplan")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except MemplanError as error:
        if debug:
            error.__suppress_context__ = False
            raise
        _say(f"memplan: {error}")
        return error.exit_code
    except click.ClickException as error:
        _say(f"memplan: {_with_help(error)}")
        return 2
    except (click.exceptions.Abort, KeyboardInterrupt):
        _say("memplan: stopped")
        return 130
    except BrokenPipeError:
        # Whoever read us has seen enough; nothing is left to be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        _say(f"memplan: {_unexpected(error)}")
        return 1


def _with_help(error: click.ClickException) -> str:
    """Return what is wrong with the command line, and where to read how it should be."""
    text = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or text.endswith("?"):
        return text
    return f"{text[0].lower()}{text[1:]}; see `{context.command_path} --help`"


def _unexpected(error: Exception) -> str:
    """Return one line about an error that memplan did not foresee."""
    from traceback import extract_tb

    from memplan.graph_capture.user_code import user_line

    text = " ".join(str(error).split()) or "no text"
    line = user_line(extract_tb(error.__traceback__))
    at = f", at {line}" if line else ""
    return f"{type(error).__name__}: {text}{at}; add --debug for the traceback"


def _check_output(folder: Path | None) -> None:
    """Refuse a place that cannot be written to before anything takes time."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"cannot write to {folder}: it is a file; name a folder")
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UsageError(f"cannot write to {folder}: {there} is not a folder that you may write")


def _compile(model_file: ModelFile, **settings: Any) -> OptimizedModule:
    from memplan import api

    return api.compile(
        model_file.model, model_file.args, model_file.kwargs, loss=model_file.loss, **settings
    )


def _verify(
    module: OptimizedModule, model_file: ModelFile, optimizer: str | None, stages: Stages
) -> Check:
    from memplan.codegen.check import check
    from memplan.graph_capture.optimizer_state import optimizer_named

    stages("checking", 0, 0)
    make: Callable[..., Any] | None = model_file.optimizer
    if optimizer is not None:
        make = optimizer_named(optimizer)
    steps = 1 if module.plan.planned_time_ns > _SLOW_STEP_NS else 2
    return check(
        module, model_file.args, model_file.kwargs, optimizer=make, steps=steps, timed_steps=0
    )


def _refuse_difference(check: Check | None) -> None:
    if check is not None and not check.identical:
        raise MemplanError(
            "the planned step differs from the unplanned one: do not train with this plan, and "
            "please report it"
        )


def _print_plan(
    plan: Plan, seconds: dict[str, float], check: Check | None, *, as_json: bool
) -> None:
    from memplan.results import plan_result
    from memplan.tables import check_table, plan_table, print_plainly

    if as_json:
        print_json(plan_result(plan, seconds, check))
        return
    print_plainly(plan_table(plan, seconds))
    if check is not None:
        print_plainly("", check_table(check))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
