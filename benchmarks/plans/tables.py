"""The tables of the benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from rich.table import Table

from benchmarks.plans.rows import Row

COLUMNS = (
    *("graph", "ops", "budget", "extra", "model", "proven", "gap", "known", "status"),
    *("first s", "s", "MB"),
)
_LEFT = ("graph", "status")
_SHARES = ("extra", "proven", "model", "known", "gap")


def plans_table(title: str, rows: Iterable[Row], known: str = "known") -> Table:
    """Return one line for each plan; `known` is what the best known value is called."""
    table = Table(box=None, title=title, title_justify="left")
    for column in COLUMNS:
        name = known if column == "known" else column
        table.add_column(name, justify="left" if column in _LEFT else "right")
    for row in rows:
        cells = row | {key: _share(row.get(key)) for key in _SHARES}
        cells |= {"budget": _budget(row), "s": _seconds(row.get("seconds"))}
        cells |= {"first s": _seconds(row.get("first_seconds"))}
        cells |= {"MB": f"{row.get('solver_bytes', 0) / 1e6:.0f}"}
        table.add_row(*(str(cells.get(column, "-")) for column in COLUMNS))
    return table


def limits_table(rows: Iterable[Row]) -> Table:
    """Return the smallest budgets of each step, and a checkpoint around each of its blocks."""
    table = Table(box=None, title="One checkpoint a block", title_justify="left")
    columns = ("graph", "blocks", "peak", "extra", "ours there", "least found", "least proven")
    for column in columns:
        table.add_column(column, justify="left" if column == "graph" else "right")
    for row in rows:
        table.add_row(
            row["graph"],
            str(row["blocks"]),
            f"{row['checkpoint_peak']:.1%}",
            _share(row["checkpoint_extra"]),
            _share(row.get("extra")),
            f"{row['least']:.1%}",
            f"{row['limit']:.1%}",
        )
    return table


def growth_table(rows: Sequence[Row]) -> Table:
    """Return the time of the solver by the size of the graph, and its growth."""
    table = Table(box=None, title="Time by size, at 50 %", title_justify="left")
    for column in ("graph", "ops", "first s", "grows", "s", "grows", "ops grow"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    before: Row | None = None
    for row in rows:
        ratios = ["-"] * 3
        if before is not None:
            keys = ("first_seconds", "seconds", "ops")
            ratios = [_ratio(row.get(key), before.get(key)) for key in keys]
        first, total = _seconds(row.get("first_seconds")), _seconds(row["seconds"])
        cells = [first, ratios[0], total, ratios[1], ratios[2]]
        table.add_row(row["graph"], str(row["ops"]), *cells)
        before = row
    return table


def mean_extra(rows: Iterable[Row], asked: str) -> tuple[float, int]:
    """Return the mean share of extra time at one budget, and over how many steps."""
    extra = [row["extra"] for row in rows if row["asked"] == asked and "extra" in row]
    return (fmean(extra) if extra else float("nan")), len(extra)


def _ratio(value: float | None, before: float | None) -> str:
    return f"x{value / before:.2f}" if value is not None and before else "-"


def _budget(row: Row) -> str:
    share = f"{row['budget']:.1%}" if "budget" in row else "-"
    return f"block {share}" if row.get("asked") == "block" else share


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
