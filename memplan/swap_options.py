"""The options of the command line that are about moving tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

_R = TypeVar("_R")
_NAMES = ("swap", "swap_dir", "host_memory", "link")


def swap_options(command: Callable[..., _R]) -> Callable[..., _R]:
    """Give a command the options and pass them on as one mapping, `swapping`."""

    @click.option(
        "--swap",
        type=click.Choice(("none", "host", "disk")),
        default="none",
        show_default=True,
        help="Where tensors may be moved to.",
    )
    @click.option("--swap-dir", metavar="FOLDER", help="Where the swap file is.")
    @click.option("--host-memory", metavar="SIZE", help="What --swap host may take.")
    @click.option(
        "--link",
        metavar="SPEED",
        help="Speed of the link, as 25GB/s; kept to by --swap host, measured by default.",
    )
    @wraps(command)
    def with_options(**options: Any) -> _R:
        swapping = {name: options.pop(name) for name in _NAMES}
        return command(swapping=swapping, **options)

    return with_options
