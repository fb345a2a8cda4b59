"""`memplan explain`: why a plan does what it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from memplan.commands.options import GET_JSON, PATH
from memplan.errors import UsageError
from memplan.results import print_json
from memplan.units import format_bytes, format_ns

if TYPE_CHECKING:
    from memplan.planner.explain import Explanation

_MOST_ROWS = 12


@click.command(
    short_help="Say why a plan keeps or recomputes.",
    epilog="Example: memplan explain gpt2-plan --module transformer.h.3.attn",
)
@click.argument("folder", type=PATH)
@click.option("--tensor", metavar="NAME", help="Why this tensor is kept or made again.")
@click.option("--op", metavar="NAME", help="What this op needs, makes and how often it runs.")
@click.option("--module", metavar="NAME", help="What is kept and made again in this module.")
@GET_JSON
def explain(
    folder: Path, tensor: str | None, op: str | None, module: str | None, as_json: bool
) -> None:
    """Explain the plan in FOLDER, which `memplan compile -o` wrote.

    Without a question: what is on the device at the peak, what each module keeps and makes
    again, and what would have to change for a smaller budget.
    """
    from memplan.codegen.artifacts import PLAN_FILE
    from memplan.planner.explain import Explanation
    from memplan.planner.plan import Plan

    if sum(question is not None for question in (tensor, op, module)) > 1:
        raise UsageError("ask for one of --tensor, --op and --module at a time")
    path = folder if folder.is_file() else folder / PLAN_FILE
    if not path.exists():
        raise UsageError(
            f"there is no plan in {folder}; write one with `memplan compile FILE -o {folder}`"
        )
    story = Explanation(Plan.load(path))
    if tensor is not None:
        answer = _about_tensor(story, tensor)
    elif op is not None:
        answer = _about_op(story, op)
    elif module is not None:
        answer = _about_module(story, module)
    else:
        answer = _about_plan(story)
    if as_json:
        print_json(answer)
    else:
        _print(answer)


def _about_plan(story: Explanation) -> dict[str, Any]:
    rows = [
        {"name": tensor.name, "bytes": tensor.nbytes, "kind": tensor.kind.value}
        for tensor in story.at_peak()
    ]
    return {
        "text": [story.peak_text()],
        "tensors_at_peak": rows,
        "modules": _modules(story, ""),
        "recomputed": _recomputed(story, None),
        "limit": story.limit_text(),
    }


def _about_tensor(story: Explanation, name: str) -> dict[str, Any]:
    names = [tensor.name for tensor in story.graph.tensors]
    t = _find(name, names, "tensor")
    found, graph = story.stories[t], story.graph
    readers = [graph.ops[i].name for i in graph.consumers[t]]
    spans = ", ".join(f"{first} to {last}" for first, last in found.spans) or "never"
    there = "is" if found.at_peak else "is not"
    return {
        "text": [
            story.why(t),
            f"It is on the device at steps {spans} of {len(story.plan.schedule)}, and {there} "
            "there at the peak.",
            f"It is read by {', '.join(readers) or 'nobody'}.",
        ],
        "tensor": names[t],
        "bytes": graph.tensors[t].nbytes,
        "kind": graph.tensors[t].kind.value,
        "runs": found.runs,
        "extra_ns": found.extra_ns,
        "at_peak": found.at_peak,
        "spans": [list(span) for span in found.spans],
    }


def _about_op(story: Explanation, name: str) -> dict[str, Any]:
    names = [op.name for op in story.graph.ops]
    i = _find(name, names, "op")
    op = story.graph.ops[i]
    again = {index: repeats for index, repeats, _ in story.recomputed()}
    runs = 1 + again.get(i, 0)
    where = f" of module {op.module}" if op.module else ""
    once = "" if op.recomputable else "; it must run only once"
    lines = [
        f"{op.name} is the {op.phase.value} op {op.target}{where}: {format_ns(op.time_ns)}, "
        f"workspace {format_bytes(op.workspace_bytes)}, runs {runs} time(s){once}."
    ]
    lines += [f"reads   {story.why(t)}" for t in op.inputs]
    lines += [f"writes  {story.why(t)}" for t in op.outputs]
    return {"text": lines, "op": op.name, "runs": runs, "time_ns": op.time_ns}


def _about_module(story: Explanation, name: str) -> dict[str, Any]:
    graph = story.graph
    modules = list(dict.fromkeys(op.module for op in graph.ops))
    inside = [m for m in modules if m == name or m.startswith(f"{name}.")]
    if not inside:
        _find(name, modules, "module")
    ops = [i for i, op in enumerate(graph.ops) if op.module in inside]
    written = (t for i in ops for t in graph.ops[i].outputs)
    free = [t for t in written if not graph.tensors[t].pinned and graph.tensors[t].nbytes]
    largest = sorted(free, key=lambda t: (-graph.tensors[t].nbytes, t))[:_MOST_ROWS]
    return {
        "text": [story.why(t) for t in largest] or [f"{name} makes nothing that could be freed."],
        "modules": _modules(story, name),
        "recomputed": _recomputed(story, set(ops)),
    }


def _modules(story: Explanation, prefix: str) -> list[dict[str, Any]]:
    return [
        asdict(row)
        for row in story.modules()
        if not prefix or row.module == prefix or row.module.startswith(f"{prefix}.")
    ]


def _recomputed(story: Explanation, ops: set[int] | None) -> list[dict[str, Any]]:
    return [
        {"op": story.graph.ops[i].name, "times": times, "extra_ns": extra_ns}
        for i, times, extra_ns in story.recomputed()
        if ops is None or i in ops
    ]


def _find(name: str, names: Sequence[str], what: str) -> int:
    if name in names:
        return names.index(name)
    close = [known for known in names if name and name in known][:3]
    close = close or get_close_matches(name, names, n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "`memplan explain FOLDER` lists them"
    raise UsageError(f"the plan has no {what} {name!r}; {hint}")


def _print(answer: dict[str, Any]) -> None:
    from memplan.tables import print_plainly

    print_plainly(*answer["text"])
    if rows := answer.get("tensors_at_peak"):
        table = _rows(("largest at the peak", "bytes", "kind"))
        for row in rows[:_MOST_ROWS]:
            table.add_row(row["name"], format_bytes(row["bytes"]), row["kind"])
        rest = sum(row["bytes"] for row in rows[_MOST_ROWS:])
        if rest:
            table.add_row(f"({len(rows) - _MOST_ROWS} more)", format_bytes(rest), "")
        print_plainly("", table)
    if rows := answer.get("modules"):
        moves = any(row["moved_bytes"] for row in rows)
        keys = ("kept_bytes", "dropped_bytes", *(("moved_bytes",) if moves else ()))
        names = ("kept for backward", "made again", *(("moved",) if moves else ()))
        table = _rows(("module", *names, "extra time"))
        for row in rows:
            sizes = [format_bytes(row[key]) for key in keys]
            table.add_row(row["module"] or "(no module)", *sizes, format_ns(row["extra_ns"]))
        print_plainly("", table)
    if rows := answer.get("recomputed"):
        table = _rows(("op that runs again", "times", "extra time"))
        for row in rows[:_MOST_ROWS]:
            table.add_row(row["op"], str(row["times"]), format_ns(row["extra_ns"]))
        rest = sum(row["extra_ns"] for row in rows[_MOST_ROWS:])
        if rest:
            table.add_row(f"({len(rows) - _MOST_ROWS} more)", "", format_ns(rest))
        print_plainly("", table)
    if answer.get("limit"):
        print_plainly("", *answer["limit"])


def _rows(columns: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", overflow="fold")
    return table
