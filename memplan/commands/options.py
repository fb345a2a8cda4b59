"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)

GET_BUDGET = click.option(
    "--budget",
    required=True,
    metavar="SIZE",
    help="Peak memory of a step: 8GB, 7.5GiB, 50% of the unplanned peak, or min.",
)
GET_SOLVER = click.option(
    "--solver",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="One of `memplan solvers`, with options or without: rotor:slots=200.",
)
GET_JSON = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
GET_OPTIMIZER = click.option(
    "--optimizer", metavar="NAME", help="Optimizer whose state counts, such as adamw."
)
GET_DEVICE = click.option(
    "--device",
    metavar="NAME",
    help="Device to plan for: one of `memplan devices` or a TOML file; by default the model's.",
)
GET_PROFILE = click.option(
    "--profile",
    metavar="KIND",
    help="Prices of ops: measured (each is run here) or analytic; analytic where the device is "
    "not here.",
)
GET_OFFLINE = click.option(
    "--offline",
    is_flag=True,
    help="Capture without allocating weights; the default for a device that is not here.",
)


GET_GAP = click.option(
    "--gap",
    type=click.FloatRange(min=0),
    default=0.003,
    show_default=True,
    metavar="SHARE",
    help="Stop when proven to be so near the fastest.",
)


def get_time_limit(default_s: float) -> Callable[[_F], _F]:
    """Return the option `--time-limit` with a default."""
    return click.option(
        "--time-limit",
        type=click.FloatRange(min=0, min_open=True),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help="How long the solver may take.",
    )
