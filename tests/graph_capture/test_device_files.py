from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.graph_capture.device_files import (
    format_device,
    parse_devices,
    read_devices,
    write_device,
)
from memplan.graph_capture.devices import device_names, find_device

FIELDS = {
    "memory_gib": "12",
    "flops": "{ float32 = 10 }",
    "bandwidth": "400",
    "launch_us": "5",
}


def text(**fields: str | None) -> str:
    lines = (f"{k} = {v}" for k, v in (FIELDS | fields).items() if v is not None)
    return "\n".join(("[gpu]", *lines))


def test_units_are_those_of_the_file() -> None:
    fields = {"host_link": "16", "usable_mib": "11000", "overhead_mib": "300"}
    device = parse_devices(text(**fields, efficiency="{ matmul = 0.7 }"), "x")["gpu"]
    assert device.memory_bytes == 11000 * 2**20
    assert device.flops_per_s == (("float32", 10**13),)
    assert device.bandwidth_bytes_per_s == 400 * 10**9
    assert device.host_bandwidth_bytes_per_s == 16 * 10**9
    assert (device.launch_ns, device.overhead_bytes) == (5000, 300 * 2**20)
    assert (device.torch_type, device.alignment_bytes) == ("cuda", 512)
    assert device.efficiency == (("matmul", 0.7),)


def test_a_cpu_rounds_nothing_and_a_link_may_be_missing() -> None:
    device = parse_devices(text(torch_type='"cpu"'), "x")["gpu"]
    assert (device.alignment_bytes, device.host_bandwidth_bytes_per_s) == (1, None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"bandwidth": None}, r"x, \[gpu\] has no 'bandwidth'; it needs memory_gib, flops"),
        ({"memory_gib": "-1"}, r"memory_gib must be a number, more than 0, not -1"),
        ({"launch_us": "0"}, r"launch_us must be a number, more than 0, not 0"),
        ({"bandwidth": '"fast"'}, r"bandwidth must be a number, more than 0, not 'fast'"),
        ({"bandwidth": "nan"}, r"bandwidth must be a number"),
        ({"bandwidth": "inf"}, r"bandwidth must be a number"),
        ({"flops": "{ float16 = 10 }"}, r"flops needs at least float32"),
        ({"flops": "{ float32 = -10 }"}, r"flops.float32 must be a number"),
        ({"flops": "10"}, r"flops must be a table"),
        ({"overhead_mib": "-3"}, r"overhead_mib must be a number, 0 or more, not -3"),
        ({"torch_type": '"tpu"'}, r"torch_type must be 'cuda' or 'cpu', not 'tpu'"),
        ({"bandwith": "3"}, r"no field is called 'bandwith'; did you mean 'bandwidth'\?"),
        ({"colour": "3"}, r"no field is called 'colour'; there are memory_gib"),
        ({"efficiency": "{ matmull = 1 }"}, r"efficiency has no 'matmull'; there are matmul"),
    ],
)
def test_a_bad_field_is_named(fields: dict[str, str | None], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_devices(text(**fields), "x")


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the device file .*No such file"):
        read_devices(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="x is not TOML"):
        parse_devices("[gpu", "x")
    with pytest.raises(UsageError, match="'memory_gib' stands outside of a table"):
        parse_devices("memory_gib = 3", "x")


@pytest.mark.parametrize("name", device_names())
def test_what_is_written_is_read_back(name: str) -> None:
    device = find_device(name)
    again = parse_devices(format_device(device), "x")[name]
    rates = dict(device.flops_per_s)
    assert dict(again.flops_per_s) == pytest.approx(rates, rel=1e-3)
    assert again.memory_bytes == pytest.approx(device.memory_bytes, rel=1e-4)
    assert again.host_bandwidth_bytes_per_s == device.host_bandwidth_bytes_per_s
    assert (again.alignment_bytes, again.torch_type) == (device.alignment_bytes, device.torch_type)


def test_writing_replaces_a_device_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "devices.toml"
    first = parse_devices(text(), "x")["gpu"]
    write_device(path, first)
    write_device(path, find_device("t4"))
    changed = parse_devices(text(bandwidth="500"), "x")["gpu"]
    write_device(path, changed)
    assert read_devices(path)["gpu"] == changed
    assert list(read_devices(path)) == ["gpu", "t4"]


def test_a_file_that_is_no_device_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool]\nname = 'x'\n")
    with pytest.raises(UsageError, match="memory_gib"):
        write_device(path, find_device("t4"))
    assert path.read_text() == "[tool]\nname = 'x'\n"
