"""Random modules at random budgets; `python -m benchmarks.fuzz` runs hundreds."""

from __future__ import annotations

import pytest

from benchmarks.fuzz import main, try_module

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_dynamo")]


@pytest.mark.parametrize("first", range(0, 25, 5))
@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_random_modules_train_like_plain_within_their_budget(first: int) -> None:
    trials = [trial for seed in range(first, first + 5) if (trial := try_module(seed))]
    assert trials
    assert [trial for trial in trials if not trial.holds] == []


def test_the_command_counts_what_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "1", "--first", "2"]) == 0
    assert "1 held" in capsys.readouterr().out
