from dataclasses import dataclass

import pytest
import torch
from torch import nn

from memplan.codegen.peak_meter import live_bytes, measure_peak
from memplan.errors import UsageError


def test_peak_is_three_tensors_where_two_are_read_to_make_one() -> None:
    def step() -> None:
        a = torch.ones(1000)
        b = a * a
        c = a + b  # a, b and c: 12,000 bytes
        del a, b
        c.exp()

    assert measure_peak(step) == 12_000


def test_peak_of_a_linear_step_is_what_autograd_keeps() -> None:
    weight = torch.ones(100, 100, requires_grad=True)
    x = torch.ones(50, 100)

    def step() -> None:
        weight.grad = None
        (x @ weight).relu().sum().backward()

    # At the end: relu's gradient (20,000), the new gradient (40,000), the loss and its seed (8);
    # relu's result is gone by then. The old gradient (40,000) was there and went first.
    assert measure_peak(step) == 20_008
    # Without an older gradient to give back it rises by all of that.

    def forget() -> None:
        step()
        weight.grad = None

    assert measure_peak(forget) == 60_008


def test_only_the_rise_counts() -> None:
    held = torch.ones(10_000)
    assert measure_peak(held.sum) == 4


def test_an_unknown_device_type_is_refused() -> None:
    with pytest.raises(UsageError, match="'tpu'"):
        measure_peak(lambda: None, "tpu")


def test_storages_are_counted_once_wherever_they_are() -> None:
    x = torch.zeros(10)

    @dataclass
    class Batch:
        tokens: torch.Tensor
        rest: list[object]

    rest: list[object] = [x[2:], {"a": torch.zeros(3, dtype=torch.int8)}, None, 7]
    rest.append(rest)
    assert live_bytes(Batch(x, rest), x.view(5, 2)) == 40 + 3


def test_a_view_keeps_its_whole_storage() -> None:
    assert live_bytes(torch.zeros(10)[:1]) == 40


def test_model_gradients_and_optimizer_state_count() -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.BatchNorm1d(10))
    parameters_bytes = 4 * (100 + 10 + 10 + 10)
    buffers_bytes = 4 * 20 + 8
    assert live_bytes(model) == parameters_bytes + buffers_bytes
    model(torch.randn(3, 10)).sum().backward()
    assert live_bytes(model) == 2 * parameters_bytes + buffers_bytes
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    steps_bytes = 4 * 4
    expected = 4 * parameters_bytes + buffers_bytes + steps_bytes
    assert live_bytes(model, optimizer) == expected
    assert live_bytes(model, optimizer, torch_type="cuda") == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_peak_is_what_tensors_asked_for() -> None:
    def step() -> None:
        a = torch.ones(1000, device="cuda")
        b = a * a
        (a + b).sum()

    step()
    assert 12_000 <= measure_peak(step, "cuda") < 12_000 + 4096
