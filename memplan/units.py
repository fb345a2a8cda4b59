"""Sizes and times. Everywhere else: integers, bytes in `*_bytes`, nanoseconds in `*_ns`."""

from __future__ import annotations

import re
from fractions import Fraction

from memplan.errors import BudgetSyntaxError

_FACTORS = {"": 1, "b": 1}
_FACTORS |= {f"{p}b": 1000**i for i, p in enumerate("kmgt", 1)}
_FACTORS |= {f"{p}ib": 1024**i for i, p in enumerate("kmgt", 1)}

_NUMBER = re.compile(r"\s*([+-]?\d+(?:[_,]\d{3})*(?:\.\d+)?)\s*([a-zA-Z%]*)\s*")


def parse_bytes(text: str | int) -> int:
    """Return the number of bytes in `text`; GB is 10**9 and GiB is 2**30.

    >>> parse_bytes("8GB"), parse_bytes("1.5 GiB"), parse_bytes(512)
    (8000000000, 1610612736, 512)

    Raises:
        BudgetSyntaxError: It is not a positive size with a known unit.
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise BudgetSyntaxError(
            f"a budget is a whole number of bytes or text such as '8GB', not {type(text).__name__}"
        )
    if isinstance(text, int):
        return _positive(text, str(text))
    match = _NUMBER.fullmatch(text)
    if not match or match[2].lower() not in _FACTORS:
        raise BudgetSyntaxError(
            f"cannot read {text!r} as a size; write for instance 8GB, 7.5GiB or 512MB"
        )
    return _positive(int(_number(match[1]) * _FACTORS[match[2].lower()]), text)


def parse_speed(text: str | int) -> int:
    """Return bytes a second; `/s` may be left out.

    >>> parse_speed("25GB/s"), parse_speed("512 MB"), parse_speed(1000)
    (25000000000, 512000000, 1000)

    Raises:
        BudgetSyntaxError: It is not a positive speed with a known unit.
    """
    if not isinstance(text, str):
        return parse_bytes(text)
    try:
        return parse_bytes(text.strip().removesuffix("/s"))
    except BudgetSyntaxError:
        raise BudgetSyntaxError(
            f"cannot read {text!r} as a speed; write for instance 25GB/s or 800MB/s"
        ) from None


def parse_budget(text: str | int, unplanned_peak_bytes: int, minimum_bytes: int) -> int:
    """Return a budget in bytes.

    Args:
        text: Bytes as a number, a size such as `"8GB"`, a share of the unplanned peak such as
            `"50%"`, or `"min"`.
        unplanned_peak_bytes: What 100 % means.
        minimum_bytes: What `"min"` means: the smallest peak a schedule is known for.

    >>> parse_budget("50%", 1000, 300), parse_budget("min", 1000, 300)
    (500, 300)

    Raises:
        BudgetSyntaxError: It is none of these, or not positive.
    """
    if isinstance(text, str) and text.strip().lower() == "min":
        return minimum_bytes
    if isinstance(text, str) and text.strip().endswith("%"):
        match = _NUMBER.fullmatch(text)
        if not match or match[2] != "%":
            raise BudgetSyntaxError(f"cannot read {text!r} as a share; write for instance 50%")
        return _positive(int(_number(match[1]) * unplanned_peak_bytes / 100), text)
    return parse_bytes(text)


def format_bytes(nbytes: int) -> str:
    """Return `nbytes` for people, in powers of ten.

    >>> format_bytes(8_123_000_000), format_bytes(512)
    ('8.12 GB', '512 B')
    """
    for power, prefix in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if abs(nbytes) >= 10**power:
            return f"{nbytes / 10**power:.2f} {prefix}"
    return f"{nbytes} B"


def format_ns(time_ns: int) -> str:
    """Return `time_ns` for people.

    >>> format_ns(1_500_000), format_ns(2_000_000_000)
    ('1.50 ms', '2.00 s')
    """
    for power, unit in ((9, "s"), (6, "ms"), (3, "us")):
        if abs(time_ns) >= 10**power:
            return f"{time_ns / 10**power:.2f} {unit}"
    return f"{time_ns} ns"


def _number(digits: str) -> Fraction:
    return Fraction(digits.replace("_", "").replace(",", ""))


def _positive(nbytes: int, text: str) -> int:
    if nbytes <= 0:
        raise BudgetSyntaxError(f"a budget must be more than 0 bytes, not {text!r}")
    return nbytes
