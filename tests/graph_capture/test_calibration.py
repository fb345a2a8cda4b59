import pytest
import torch

from memplan.errors import UsageError
from memplan.graph_capture import calibration
from memplan.graph_capture.device_files import format_device, parse_devices


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_SIZES", {"cpu": (64, 128)})
    monkeypatch.setattr(calibration, "_COPY_BYTES", {"cpu": 2**22})
    monkeypatch.setattr(calibration, "_ENOUGH_S", 0.01)


@pytest.mark.usefixtures("short")
def test_this_machine_is_described_by_what_it_attains() -> None:
    seen: list[tuple[str, int, int]] = []
    device = calibration.calibrate("here", progress=lambda *at: seen.append(at))
    rates = dict(device.flops_per_s)
    # Wide bounds: other programs may be using the machine.
    assert 10**6 < rates["float32"] < 10**14
    assert 10**7 < device.bandwidth_bytes_per_s < 10**13
    assert 100 < device.launch_ns < 10**7
    assert dict(device.efficiency).keys() == {
        "matmul",
        "bandwidth",
        "convolution",
        "attention",
        "pointwise",
    }
    assert all(0 < share < 10 for share in dict(device.efficiency).values())
    assert parse_devices(format_device(device), "x")["here"].torch_type == "cpu"
    assert seen[0] == ("measuring copies", 0, 9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_here_is_refused() -> None:
    with pytest.raises(UsageError, match="torch sees no GPU here"):
        calibration.calibrate("gpu", "cuda")
