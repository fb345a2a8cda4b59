"""Steps of a schedule as they stand in a plan file: a word and what it is about, by index."""

from __future__ import annotations

from typing import Any

from memplan.planner.schedule import Compute, Drop, Prefetch, Step, SwapOut, Wait

_ONE_INDEX: dict[str, type[Compute | Drop | Prefetch | Wait]] = {
    "compute": Compute,
    "drop": Drop,
    "prefetch": Prefetch,
    "wait": Wait,
}


def write_step(step: Step) -> tuple[str | int, ...]:
    """Return what `read_step` reads back."""
    if isinstance(step, Compute):
        return ("compute", step.op)
    if isinstance(step, SwapOut):
        return ("swap_out", step.tensor, step.tier)
    word = {Drop: "drop", Prefetch: "prefetch", Wait: "wait"}[type(step)]
    return (word, step.tensor)


def read_step(written: Any) -> Step:
    """Return the step.

    Raises:
        ValueError: It is none.
        TypeError: It is not even a list.
    """
    word, *indices = written
    if any(type(index) is not int for index in indices):
        raise ValueError(f"{written!r} is no step")
    if word == "swap_out" and len(indices) == 2:
        return SwapOut(*indices)
    if word in _ONE_INDEX and len(indices) == 1:
        return _ONE_INDEX[word](indices[0])
    raise ValueError(f"{written!r} is no step")
