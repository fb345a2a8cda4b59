"""What the command line shows while it works, and what it keeps from showing."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from memplan.planner.problem import Standing

# Their warnings are about settings of theirs that our users did not choose and cannot change.
_NOISY = ("torch", "transformers")


class Stages:
    """Shows what is going on, where someone watches, and notes how long it took.

    Attributes:
        seconds: Time of each stage that ended, by name, in order.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None, count="")
        self._name = ""
        self._since = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        """Take note that `done` of `total` parts of stage `name` are done; 0 of 0: unknown."""
        if name != self._name:
            self.finish()
            self._name, self._since = name, time.perf_counter()
        self._bar.update(
            self._task,
            description=name,
            completed=done,
            total=total if total else None,
            count=f"{done}/{total}" if total else "",
        )

    def watch(self, now: Standing) -> None:
        """Show how far the solver is."""
        self._bar.update(self._task, count=described(now))

    def finish(self) -> None:
        """Note the time of the stage that ends."""
        if self._name:
            spent = time.perf_counter() - self._since
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + spent
        self._name = ""


def described(now: Standing) -> str:
    """Return the stage, the best schedule so far, the bound and the gap, in one short line."""
    if now.best_ns is None:
        return f"{now.stage}: no schedule yet"
    extra, bound = (ns / max(1, now.step_ns) - 1 for ns in (now.best_ns, now.bound_ns))
    gap = "" if now.gap is None else f", gap {now.gap:.2%}"
    return f"{now.stage}: extra time {extra:.2%}, bound {bound:.2%}{gap}"


@contextmanager
def stages_shown() -> Iterator[Stages]:
    """Show a progress bar on stderr where that is a terminal; nothing is left of it."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        stages = Stages(bar)
        yield stages
        stages.finish()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of libraries, and the tracebacks that they log, from the terminal.

    Warnings about the user's own files are shown in one line each.
    """
    loggers = [logging.getLogger(name) for name in _NOISY]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _show_if_users
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _show_if_users(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    from memplan.graph_capture.user_code import is_users_file

    if is_users_file(filename):
        text = " ".join(str(message).split())
        sys.stderr.write(f"{filename}:{lineno}: {category.__name__}: {text}\n")
