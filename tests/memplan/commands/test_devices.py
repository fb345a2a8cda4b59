import json
from pathlib import Path

import pytest

from memplan.cli import main
from memplan.graph_capture import calibration


def test_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "79.6 GiB" in rows["h100"]
    assert "512 B" in rows["a100-40gb"]
    assert main(["devices", "--json"]) == 0
    known = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert known["a100-40gb"]["memory_bytes"] == 40 * 2**30
    assert known["cpu"]["host_bandwidth_bytes_per_s"] is None


def test_what_is_calibrated_can_be_used_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(calibration, "_SIZES", {"cpu": (64,)})
    monkeypatch.setattr(calibration, "_COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(calibration, "_ENOUGH_S", 0.001)
    assert main(["calibrate", "--name", "box"]) == 0
    captured = capsys.readouterr()
    assert "use it with --device box" in captured.err
    assert main(["devices", "--json"]) == 0
    assert "box" in {row["name"] for row in json.loads(capsys.readouterr().out)}
    path = tmp_path / "other.toml"
    assert main(["calibrate", "-o", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(path)


def test_a_damaged_device_file_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[gpu]\nmemory_gib = -3\nflops = {float32 = 1}\nbandwidth = 3\nlaunch_us = 1")
    monkeypatch.setenv("MEMPLAN_DEVICES", str(path))
    assert main(["devices"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "memory_gib must be a number, more than 0, not -3" in err
