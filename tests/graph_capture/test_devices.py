import pytest
import torch

from memplan.errors import UnknownDevice
from memplan.graph_capture.devices import device_names, find_device


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
    known = {"tfloat32"} | {name for name in dir(torch) if name.startswith(("float", "bfloat"))}
    assert set(rates) <= known


def test_an_h100_is_what_its_datasheet_says() -> None:
    h100 = find_device(" H100 ")
    assert h100.memory_bytes == 80 * 2**30
    assert dict(h100.flops_per_s)["bfloat16"] == 989_400_000_000_000
    assert h100.bandwidth_bytes_per_s == 3_350_000_000_000
    assert (h100.torch_type, h100.alignment_bytes, h100.launch_ns) == ("cuda", 512, 3500)


def test_names_are_read_kindly() -> None:
    assert find_device("A100 80GB") == find_device("a100_80gb") == find_device("a100-80gb")


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(UnknownDevice, match=r"'h1000'; choose one of cpu, a100-40gb, .*v100-32gb"):
        find_device("h1000")
