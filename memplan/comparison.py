"""The command `compare`: its graph, its table and its picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table

from memplan.errors import UsageError
from memplan.graph_capture.graph import Graph
from memplan.planner.compare import ComparisonRow
from memplan.progress import Stages
from memplan.tables import print_plainly
from memplan.units import format_bytes


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


def draw_comparison(rows: Sequence[ComparisonRow], title: str, output: Path) -> None:
    """Draw extra time against the peak, one curve a solver, into a PNG or SVG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.4), layout="constrained")
    colours = pyplot.get_cmap("tab20")
    names = list(dict.fromkeys(row.solver for row in rows))
    for at, name in enumerate(names):
        points = sorted(
            (row.peak_bytes / 1e9, 100 * row.overhead)
            for row in rows
            if row.solver == name and row.overhead is not None and row.peak_bytes is not None
        )
        if points:
            axes.plot(
                *zip(*points, strict=True),
                marker="o",
                markersize=4,
                linewidth=2.4 if name == "auto" else 1.2,
                color="black" if name == "auto" else colours(at % 20),
                label=name,
            )
    bounds = sorted({(row.budget_bytes, row.bound) for row in rows if row.solver == "auto"})
    if bounds:
        axes.plot(
            [nbytes / 1e9 for nbytes, _ in bounds],
            [100 * bound for _, bound in bounds],
            color="grey",
            linestyle="--",
            label="proven bound",
        )
    axes.set_xlabel("peak of device memory in GB")
    axes.set_ylabel("extra time in per cent of the step, by the profile")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8, ncol=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(output, dpi=150)
    pyplot.close(figure)
