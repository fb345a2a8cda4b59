from pathlib import Path

import pytest
import torch

from memplan.errors import UnknownDevice, UsageError
from memplan.graph_capture.devices import (
    DEVICES_VARIABLE,
    device_names,
    find_device,
    known_devices,
)

OWN = """
[my-gpu]
memory_gib = 12
flops = { float32 = 10, float16 = 20 }
bandwidth = 400
launch_us = 5
"""


def test_the_cpu_is_this_machine() -> None:
    cpu = find_device()
    assert cpu.name == "cpu"
    assert cpu.torch_type == "cpu"
    assert 2**28 < cpu.memory_bytes < 2**46
    assert cpu.alignment_bytes == 1
    assert find_device("CPU") is cpu


@pytest.mark.parametrize("name", device_names())
def test_every_device_is_complete(name: str) -> None:
    device = find_device(name)
    rates = dict(device.flops_per_s)
    assert device.name == name
    assert {"float64", "float32", "float16", "bfloat16"} <= set(rates)
    # A wrong unit would be off by 1000.
    assert 10**10 < rates["float32"] < 10**15
    assert rates["float64"] <= rates["float32"] <= rates["float16"]
    assert 10**9 < device.bandwidth_bytes_per_s < 10**14
    assert 1_000 <= device.launch_ns <= 20_000
    assert device.source
    if device.torch_type == "cuda":
        assert device.host_bandwidth_bytes_per_s
        assert 10**10 <= device.host_bandwidth_bytes_per_s < device.bandwidth_bytes_per_s
        assert 2**27 < device.overhead_bytes < 2**30
    known = {"tfloat32"} | {name for name in dir(torch) if name.startswith(("float", "bfloat"))}
    assert set(rates) <= known


def test_an_h100_is_what_its_datasheet_says() -> None:
    h100 = find_device(" H100 ")
    assert h100.memory_bytes == 81559 * 2**20
    assert dict(h100.flops_per_s)["bfloat16"] == 989_400_000_000_000
    assert h100.bandwidth_bytes_per_s == 3_350_000_000_000
    assert h100.host_bandwidth_bytes_per_s == 64_000_000_000
    assert (h100.torch_type, h100.alignment_bytes, h100.launch_ns) == ("cuda", 512, 3500)


def test_names_are_read_kindly() -> None:
    assert find_device("A100 80GB") == find_device("a100_80gb") == find_device("a100-80gb")


def test_an_unknown_name_is_answered_with_the_nearest_or_all() -> None:
    with pytest.raises(UnknownDevice, match=r"'h1000'; did you mean h100.*\?"):
        find_device("h1000")
    with pytest.raises(UnknownDevice, match=r"choose one of cpu, a100-40gb, .*v100-32gb, or name"):
        find_device("quantum")


def test_users_add_devices_and_may_replace_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    monkeypatch.setenv(DEVICES_VARIABLE, str(path))
    path.write_text(OWN.replace("my-gpu", "H100"))
    assert find_device("h100").memory_bytes == 12 * 2**30
    assert known_devices()["t4"] == find_device("t4")


def test_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(OWN)
    assert find_device(str(path)) == find_device(f"{path}:my-gpu")
    path.write_text(OWN + OWN.replace("my-gpu", "second"))
    assert find_device(f"{path}:second").name == "second"
    with pytest.raises(UnknownDevice, match=r"has 2 devices; name one: .*:my-gpu, .*:second"):
        find_device(str(path))
    path.write_text("")
    with pytest.raises(UsageError, match="describes no device"):
        find_device(str(path))
