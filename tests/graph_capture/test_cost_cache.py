import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from memplan.graph_capture.cache_folder import cache_folder
from memplan.graph_capture.cost_cache import CostCache
from memplan.graph_capture.profile import OpCost

ENVIRONMENT = ("v1", "AMD EPYC 7B13", "2 threads")


def test_costs_come_back_and_later_ones_win(tmp_path: Path) -> None:
    cache = CostCache(tmp_path / "new", ENVIRONMENT)
    assert cache.read() == {}
    cache.add({"a": OpCost(1, 2), "b": OpCost(3, 4)})
    cache.add({"a": OpCost(5, 6, 7)})
    assert CostCache(tmp_path / "new", ENVIRONMENT).read() == {
        "a": OpCost(5, 6, 7),
        "b": OpCost(3, 4),
    }


def test_another_environment_has_its_own_file(tmp_path: Path) -> None:
    CostCache(tmp_path, ENVIRONMENT).add({"a": OpCost(1, 2)})
    assert CostCache(tmp_path, (*ENVIRONMENT[:2], "1 threads")).read() == {}
    assert CostCache(tmp_path, ENVIRONMENT).path.name.startswith("op-costs-v1-amd-epyc-7b13-2-")


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b'{"key": "b", "time_ns": 1',
        b'{"key": "b"}',
        b'{"key": "b", "time_ns": -1, "workspace_bytes": 0}',
        b"[]",
    ],
)
def test_a_damaged_file_is_dropped_with_a_warning(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    cache = CostCache(tmp_path, ENVIRONMENT)
    cache.add({"a": OpCost(1, 2)})
    cache.path.write_bytes(cache.path.read_bytes() + line)
    with caplog.at_level(logging.WARNING):
        assert cache.read() == {}
    assert "damaged cost cache" in caplog.text
    cache.add({"c": OpCost(7, 8)})
    assert cache.read() == {"c": OpCost(7, 8)}


def test_a_folder_that_cannot_be_made_costs_only_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    cache = CostCache(tmp_path / "file", ENVIRONMENT)
    with caplog.at_level(logging.WARNING):
        cache.add({"a": OpCost(1, 2)})
    assert "cannot write the cost cache" in caplog.text


def _add_many(folder: Path, first: int) -> None:
    cache = CostCache(folder, ENVIRONMENT)
    for i in range(first, first + 50):
        cache.add({f"{i} {'x' * 2000}": OpCost(i, i)})


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    # Threads with a file handle each meet in the kernel just as processes do, and start faster.
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(_add_many, tmp_path), (0, 50)))
    costs = CostCache(tmp_path, ENVIRONMENT).read()
    assert sorted(cost.time_ns for cost in costs.values()) == list(range(100))


def test_the_folder_can_be_chosen_by_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMPLAN_CACHE_DIR", os.fspath(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("MEMPLAN_CACHE_DIR")
    assert cache_folder().name == "memplan"
