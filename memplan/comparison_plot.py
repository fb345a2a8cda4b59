"""The picture of a comparison: extra time against peak, one curve a solver, for up to fifty."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from memplan.errors import MemplanError
from memplan.planner.compare import ComparisonRow
from memplan.planner.solver import load_solver

_GROUPS = {
    "this project": "Greys",
    "exact in their model": "Blues",
    "heuristics": "Greens",
    "baselines": "Oranges",
    "recompute and move": "Reds",
    "move only": "Purples",
}
"""Each group of solvers with the colours of its curves."""
_OURS = ("auto", "greedy", "joint", "reorder", "windowed")
_MARKERS = "osD^v<>Pp*hX"
_MOST_TIMES_BEST = 4.0
"""Where dearer plans leave the picture, in terms of the dearest of the cheapest at each budget."""
_LEAST_TOP = 10.0


def draw_comparison(rows: Sequence[ComparisonRow], title: str, output: Path) -> None:
    """Draw extra time against the peak, with the best proven bound, as PNG, PDF or SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = _curves(rows)
    figure, axes = pyplot.subplots(figsize=(10, 5.6), layout="constrained")
    handles = _draw_curves(axes, curves)
    bounds = _bounds(rows)
    if bounds:
        (line,) = axes.plot(*zip(*bounds, strict=True), color="black", linestyle="--", linewidth=1)
        handles.append((line, "proven lower bound"))
    top = _top(rows)
    above = sum(y > top for points in curves.values() for _, y in points)
    axes.set_ylim(0, top)
    axes.set_xlabel("peak of device memory in GB")
    axes.set_ylabel("extra time in % of the step")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(color="0.93")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    columns = 1 if len(handles) <= 26 else 2
    figure.legend(
        [handle for handle, _ in handles],
        [label for _, label in handles],
        loc="outside right upper",
        frameon=False,
        fontsize=8,
        ncol=columns,
        handlelength=2.2,
    )
    notes = [f"above the top: {above} plan{'s' * (above > 1)}"] if above else []
    without = [name for name in dict.fromkeys(row.solver for row in rows) if name not in curves]
    notes += [f"without any plan: {', '.join(without)}"] if without else []
    if notes:
        figure.supxlabel(_wrapped("; ".join(notes)), fontsize=7, color="0.4", x=0.01, ha="left")
    figure.savefig(output, dpi=150)
    pyplot.close(figure)


def _draw_curves(axes: Any, curves: dict[str, list[tuple[float, float]]]) -> list[tuple[Any, str]]:
    """Draw the curves group by group; return what the legend shows."""
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    handles: list[tuple[Any, str]] = []
    for group, colours in _GROUPS.items():
        names = [name for name in curves if _group_of(name) == group]
        if not names:
            continue
        handles.append((Line2D([], [], linestyle="none"), f"$\\bf{{{group.replace(' ', '~')}}}$"))
        for at, name in enumerate(names):
            shade = 0.9 - 0.5 * at / max(1, len(names) - 1) if len(names) > 1 else 0.8
            best = name == "auto"
            (line,) = axes.plot(
                *zip(*curves[name], strict=True),
                marker=_MARKERS[at % len(_MARKERS)],
                markersize=6 if best else 4.5,
                linewidth=2.6 if best else 1.1,
                color="black" if best else colormaps[colours](shade),
                zorder=4 if best else 2,
                clip_on=True,
            )
            handles.append((line, name))
    return handles


def _curves(rows: Sequence[ComparisonRow]) -> dict[str, list[tuple[float, float]]]:
    """Return GB and per cent of each plan by solver, the smallest peak first."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.overhead is not None and row.peak_bytes is not None:
            curves.setdefault(row.solver, []).append((row.peak_bytes / 1e9, 100 * row.overhead))
    return {name: sorted(points) for name, points in curves.items()}


def _bounds(rows: Sequence[ComparisonRow]) -> list[tuple[float, float]]:
    """Return GB and per cent of the best proven bound of each budget that has a plan.

    What holds for a budget holds for all smaller ones.
    """
    best: dict[int, float] = {}
    planned = {row.budget_bytes for row in rows if row.overhead is not None}
    for row in rows:
        if row.budget_bytes in planned:
            best[row.budget_bytes] = max(best.get(row.budget_bytes, 0.0), row.bound)
    falling = sorted(best.items(), reverse=True)
    bounds = accumulate((bound for _, bound in falling), max)
    line = [
        (nbytes / 1e9, 100 * bound) for (nbytes, _), bound in zip(falling, bounds, strict=True)
    ]
    return line[::-1]


def _top(rows: Sequence[ComparisonRow]) -> float:
    """Return where the axis of extra time ends, so that the good plans can be told apart."""
    cheapest: dict[int, float] = {}
    for row in rows:
        if row.overhead is not None:
            before = cheapest.get(row.budget_bytes, row.overhead)
            cheapest[row.budget_bytes] = min(before, row.overhead)
    dearest = max((row.overhead for row in rows if row.overhead is not None), default=0.0)
    limit = max(_LEAST_TOP, 100 * _MOST_TIMES_BEST * max(cheapest.values(), default=0.0))
    return min(max(_LEAST_TOP / 2, 105 * dearest), limit)


def _group_of(name: str) -> str:
    if name.partition(":")[0] in _OURS:
        return "this project"
    try:
        solver = load_solver(name)
    except MemplanError:
        return "baselines"
    may = getattr(solver, "may", ())
    if "swap" in may:
        return "recompute and move" if "recompute" in may else "move only"
    kinds = {"exact": "exact in their model", "heuristic": "heuristics"}
    return kinds.get(solver.kind, "baselines")


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 170)
