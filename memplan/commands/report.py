"""`memplan report`: a plan as a page, a picture or a trace."""

from __future__ import annotations

from pathlib import Path

import click

from memplan.commands.options import PATH
from memplan.errors import UsageError

_TRACE, _PAGE = ".json", ".html"


@click.command(
    short_help="Write a plan as a page, a picture or a trace.",
    epilog="Example: memplan report gpt2-plan -o memory.svg",
)
@click.argument("folder", type=PATH)
@click.option(
    "-o",
    "--output",
    type=PATH,
    metavar="FILE",
    help="Ends in .html (by default FOLDER/report.html), .png, .svg or .pdf, or in .json: a trace "
    "for Perfetto or Chrome.",
)
def report(folder: Path, output: Path | None) -> None:
    """Show the plan in FOLDER, which `memplan compile -o` wrote.

    The page shows memory over time, what is on the device at any moment, the decisions by
    module, how the plan was made and the generated code. It opens from disk, without a network.
    """
    from memplan.codegen.artifacts import CODE_FILES, PLAN_FILE
    from memplan.codegen.picture import PICTURES, draw
    from memplan.codegen.report import REPORT_FILE
    from memplan.codegen.report import report as page_of
    from memplan.codegen.trace import trace
    from memplan.planner.plan import Plan

    path = folder if folder.is_file() else folder / PLAN_FILE
    if not path.exists():
        raise UsageError(
            f"there is no plan in {folder}; write one with `memplan compile FILE -o {folder}`"
        )
    target = output or path.parent / REPORT_FILE
    kind = target.suffix.lower()
    if kind not in (*PICTURES, _TRACE, _PAGE):
        raise UsageError(f"cannot tell what {target} should be: end it in .html, .svg or .json")
    plan = Plan.load(path)
    code = {name: path.parent / name for name in CODE_FILES}
    try:
        if kind in PICTURES:
            draw(plan, target)
        elif kind == _TRACE:
            target.write_text(trace(plan), encoding="utf-8")
        else:
            texts = {n: p.read_text(encoding="utf-8") for n, p in code.items() if p.exists()}
            target.write_text(page_of(plan, texts), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
    click.echo(f"written to {target}", err=True)
