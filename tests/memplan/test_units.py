from __future__ import annotations

import pytest

from memplan.errors import BudgetSyntaxError
from memplan.units import format_bytes, format_ns, parse_budget, parse_bytes, parse_speed

PEAK, MINIMUM = 8_000, 3_000


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (512, 512),
        ("512", 512),
        ("512B", 512),
        ("512 b", 512),
        ("8kB", 8_000),
        ("8KB", 8_000),
        ("8MB", 8_000_000),
        ("8GB", 8_000_000_000),
        ("8gb", 8_000_000_000),
        ("8TB", 8_000_000_000_000),
        ("8KiB", 8 * 2**10),
        ("8MiB", 8 * 2**20),
        ("8GiB", 8 * 2**30),
        ("8gib", 8 * 2**30),
        ("8TiB", 8 * 2**40),
        ("  7.5 GiB ", 15 * 2**29),
        ("0.3GB", 300_000_000),  # exact: through a float it would be 299,999,999
        ("+5MB", 5_000_000),
        ("1,000,000", 1_000_000),
        ("1_000_000 B", 1_000_000),
        ("1,500.5kB", 1_500_500),
    ],
)
def test_sizes(text: str | int, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes
    assert parse_budget(text, PEAK, MINIMUM) == nbytes


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("50%", 4_000),
        (" 50 % ", 4_000),
        ("12.5%", 1_000),
        ("100%", PEAK),
        ("150%", 12_000),
        ("1,000%", 80_000),
        ("33.33%", 2_666),  # 2666.4: a budget is rounded down, never up
        ("min", MINIMUM),
        (" MIN ", MINIMUM),
    ],
)
def test_relative_budgets(text: str, nbytes: int) -> None:
    assert parse_budget(text, PEAK, MINIMUM) == nbytes


@pytest.mark.parametrize(
    "text",
    ["", "GB", "8 G", "8 GBs", "8GB 2", "eight", "1e9", "0x10", "8,00", ".5GB", "5.GB", "nan"],
)
def test_unreadable_sizes_say_what_to_write(text: str) -> None:
    with pytest.raises(BudgetSyntaxError, match=r"cannot read .* write for instance 8GB"):
        parse_budget(text, PEAK, MINIMUM)


@pytest.mark.parametrize("text", ["%", "half%", "50%%", "50GB%", "1,0%"])
def test_unreadable_shares_say_what_to_write(text: str) -> None:
    with pytest.raises(BudgetSyntaxError, match="write for instance 50%"):
        parse_budget(text, PEAK, MINIMUM)


@pytest.mark.parametrize("text", [0, -1, "0", "0GB", "-8GB", "0%", "-50%", "0.1B", "0.001%"])
def test_budgets_are_positive(text: str | int) -> None:
    with pytest.raises(BudgetSyntaxError, match="more than 0 bytes"):
        parse_budget(text, PEAK, MINIMUM)


@pytest.mark.parametrize("budget", [8e9, None, True, b"8GB"])
def test_other_types_are_refused_by_name(budget: object) -> None:
    with pytest.raises(BudgetSyntaxError, match=rf"not {type(budget).__name__}"):
        parse_budget(budget, PEAK, MINIMUM)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.00 kB"),
        (8_123_000_000, "8.12 GB"),
        (-2_500_000, "-2.50 MB"),
        (3 * 10**12, "3.00 TB"),
    ],
)
def test_format_bytes(nbytes: int, text: str) -> None:
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1_500, "1.50 us"), (2_000_000_000, "2.00 s")],
)
def test_format_ns(time_ns: int, text: str) -> None:
    assert format_ns(time_ns) == text


def test_a_speed_may_leave_out_a_second() -> None:
    assert parse_speed("25GB/s") == parse_speed(" 25 GB ") == 25_000_000_000
    with pytest.raises(BudgetSyntaxError, match=r"cannot read 'fast' as a speed; write .* 25GB/s"):
        parse_speed("fast")
