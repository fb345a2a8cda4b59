"""The command `compare`: its graph, its table and its picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.table import Table

from memplan.errors import UsageError
from memplan.graph_capture.graph import Graph
from memplan.planner.compare import ComparisonRow
from memplan.planner.tiers import Tier
from memplan.progress import Stages
from memplan.tables import print_plainly
from memplan.units import format_bytes, parse_speed


def graph_to_compare(path: Path, profile: str, optimizer: str | None, stages: Stages) -> Graph:
    """Return the graph in a JSON file, or that of the training step in a Python file.

    Raises:
        UsageError: The file is neither.
        CaptureError: The model cannot be captured as one graph.
    """
    if path.suffix != ".py":
        from memplan.graph_capture.graph_files import read_graph

        return read_graph(path)
    from memplan import api
    from memplan.model_file import read_model_file

    stages("capturing", 0, 0)
    model_file = read_model_file(path)
    return api.capture(
        model_file.model,
        model_file.args,
        model_file.kwargs,
        loss=model_file.loss,
        optimizer=optimizer or model_file.optimizer,
        profile=profile,  # type: ignore[arg-type]  # it refuses what is no profile
        progress=stages,
    )


def split_list(text: str, what: str) -> list[str]:
    """Return the parts of `a,b,c`.

    >>> split_list("30%, 50%", "budgets")
    ['30%', '50%']

    Raises:
        UsageError: There is none.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError(f"--{what} names none; separate several by commas")
    return parts


def host_behind(link: str) -> Tier:
    """Return a host memory of any size behind a link, by its speed such as `25GB/s`.

    >>> host_behind("25GB/s").read_bytes_per_s
    25000000000

    Raises:
        BudgetSyntaxError: It is no speed.
    """
    speed = parse_speed(link)
    return Tier(name="host", capacity_bytes=2**62, write_bytes_per_s=speed, read_bytes_per_s=speed)


def check_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be drawn before anything takes time.

    Raises:
        UsageError: matplotlib is not installed, or there is no such folder.
    """
    if path is None:
        return
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib; run `pip install 'memplan[plots]'`")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}")


def print_comparison(rows: Iterable[ComparisonRow]) -> None:
    """Print one line for each budget and solver."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("budget", "solver", "status"):
        table.add_column(column, no_wrap=True)
    for column in ("extra time", "peak", "proven bound", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("remark", overflow="fold")
    for row in rows:
        table.add_row(
            row.budget,
            row.solver,
            row.status,
            "-" if row.overhead is None else f"+{row.overhead:.2%}",
            "-" if row.peak_bytes is None else format_bytes(row.peak_bytes),
            f"+{row.bound:.2%}",
            f"{row.seconds:.1f}",
            row.reason,
        )
    print_plainly(table)
