"""Operators that the tracer would decompose by other formulas than plain PyTorch runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan.codegen.check import check
from memplan.graph_capture.native_kernels import traced_as_run
from tests.steps import assert_like_plain, planned


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Recurrent(nn.Module):
    """Any recurrent layer behind a layer whose gradient it must pass on."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.first, self.last = layer, nn.Linear(6, 8), nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.layer(self.first(x).tanh())[0])
        return result


LAYERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "lstm": (lambda: nn.LSTM(8, 5), 5),
    "lstm of two layers, both ways, dropout": (
        lambda: nn.LSTM(8, 5, 2, dropout=0.3, bidirectional=True, batch_first=True),
        10,
    ),
    "lstm without bias": (lambda: nn.LSTM(8, 5, bias=False), 5),
    "lstm with projection": (lambda: nn.LSTM(8, 5, proj_size=3), 3),
    "gru": (lambda: nn.GRU(8, 5, 2, dropout=0.3), 5),
    "rnn": (lambda: nn.RNN(8, 5, bidirectional=True), 10),
    "rnn with relu": (lambda: nn.RNN(8, 5, nonlinearity="relu"), 5),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_train_like_plain_ones(name: str) -> None:
    build, width = LAYERS[name]
    assert_like_plain(Recurrent(build(), width), [torch.randn(4, 3, 6)])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("gradients", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_an_lstm_runs_the_kernel_of_its_mode(
    training: bool, gradients: Callable[[], AbstractContextManager[Any]]
) -> None:
    model = Recurrent(nn.LSTM(8, 5, 2, dropout=0.3), 5)
    x = torch.randn(4, 3, 6)
    optimized = planned(model, [x])
    model.train(training)
    with gradients():
        torch.manual_seed(1)
        expected = model(x)
        torch.manual_seed(1)
        assert torch.equal(optimized(x), expected)


def test_the_workspace_of_an_lstm_is_in_the_plan() -> None:
    model, x = Recurrent(nn.LSTM(8, 32, 2), 32), torch.randn(40, 16, 6)
    optimized = planned(model, [x], profile="measured")
    found = check(optimized, [x], timed_steps=0)
    assert found.identical
    assert abs(found.measured_peak_bytes / found.planned_peak_bytes - 1) < 0.02


class Dropping(nn.Module):
    """Dropout alone: a layer after it would hide a last bit."""

    def __init__(self, p: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.p, self.scale = p, nn.Parameter(torch.ones(8, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout((x * self.scale).sin(), self.p, self.training)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.15, 0.42, 0.5, 0.87, 1.0])
def test_dropout_of_any_share_has_the_bits_of_plain(p: float, dtype: torch.dtype) -> None:
    assert_like_plain(Dropping(p, dtype), [torch.randn(64, 8, dtype=dtype)], steps=1)


class Resized(nn.Module):
    """One image in another size, by every mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        y, resize = self.conv(x), functional.interpolate
        made = [resize(y, scale_factor=1.7, mode=mode) for mode in ("nearest", "nearest-exact")]
        for mode in ("bilinear", "bicubic"):
            for corners in (True, False):
                made.append(resize(y, size=(17, 9), mode=mode, align_corners=corners))
            made.append(resize(y, size=(5, 4), mode=mode, antialias=True))
        made.append(resize(y.flatten(2), size=77, mode="linear"))
        made.append(resize(y[:, :, None], size=(3, 7, 8), mode="trilinear"))
        return [*made, functional.hardshrink(y), functional.softshrink(y)]


def test_interpolation_trains_like_plain() -> None:
    assert_like_plain(Resized(), [torch.randn(2, 3, 12, 12)])


def test_the_tracers_own_formulas_are_put_back() -> None:
    before = dict(torch.ops.aten.lstm.input.py_kernels)
    with traced_as_run():
        assert torch._C.DispatchKey.Autograd not in torch.ops.aten.lstm.input.py_kernels
    assert torch.ops.aten.lstm.input.py_kernels == before
