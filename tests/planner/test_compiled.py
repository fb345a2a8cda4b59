from __future__ import annotations

import pytest

from memplan.planner.compiled import run


def interrupted() -> None:
    """Raise as numba's dispatcher does where a signal comes while it hands over a result."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as cause:
        raise SystemError("returned a result with an exception set") from cause


def broken() -> None:
    raise SystemError("something else")


def test_ctrl_c_is_raised_as_such() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(interrupted)
    with pytest.raises(SystemError, match="else"):
        run(broken)
    assert run(max, 1, 2) == 2
