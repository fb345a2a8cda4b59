"""What a user reads when a model cannot be captured: one line, with the line of their code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memplan
from memplan.codegen.capture_errors import capture_error, explain
from memplan.errors import CaptureError, InfeasibleBudget

Loss = Callable[..., Any]

HEAD = """
import torch
from torch import nn
from torch.nn import functional

class Stop(Exception):
    pass

def endless(x):
    while True:
        yield x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4))

    def forward(self, x):
        x = self.linear(x)
        """
LINE = HEAD.count("\n") + 1


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    # The tracer logs its own traceback before it raises; a user of the API may see it.
    log = logging.getLogger("torch")
    level = log.level
    log.setLevel(logging.CRITICAL)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    log.setLevel(level)


def module_of(tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with `Net`, whose forward ends in `body`, at line `LINE` of bad.py."""
    path = tmp_path / "bad.py"
    path.write_text(HEAD + body + "\n")
    module = ModuleType("bad")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "bad", module)
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return module


def refusal(model: nn.Module, *args: torch.Tensor, loss: Loss | None = None, **kwargs: Any) -> str:
    """The text of the error, after what must hold for every one of them."""
    with pytest.raises(CaptureError) as caught:
        memplan.capture(model, args, kwargs, loss=loss, profile="analytic")
    text = str(caught.value)
    assert "\n" not in text
    for noise in ("TORCHDYNAMO", "TORCH_LOGS", "Hint", "Explanation", "http", "Dynamo"):
        assert noise not in text
    assert caught.value.__suppress_context__
    return text


BODIES = {
    "return x if x.sum() > 0 else -x": "a branch depends on the values of a tensor",
    "return x[: int(x.sum().item())]": "depends on the values of a tensor",
    "return x[x > 0].sum()": "memplan needs static shapes",
    "return x * x.tolist()[0][0]": "does not support tracing `tolist()`",
    "print(x); return x": "does not know how to trace builtin operator `print`",
    "open('x'); return x": "does not know how to trace builtin operator `open`",
    "x.sum().backward(); return x": "does not support tracing `Tensor.backward()`",
    "torch._dynamo.graph_break(); return x": "User-inserted graph break",
    "return x + torch.randn(3)": "raises RuntimeError: ",
    "return self.inner(x)": "raises RuntimeError: ",
    "return functional.cross_entropy(x, torch.zeros(3, dtype=torch.int64))": (
        "raises ValueError: Expected input batch_size (2) to match target batch_size (3)"
    ),
    "raise ValueError('not today')": "raises ValueError: not today",
    "raise ValueError('two\\nlines')": "raises ValueError: two lines",
    "raise Stop": "raises Stop, at",
    "raise Stop(1, 'b')": "raises Stop: (1, 'b'), at",
    "return x * {}['scale']": "raises KeyError: scale",
    "return x * [1, 2][5]": "raises IndexError: list index out of range",
    "return x[10]": "raises IndexError: index 10 is out of bounds",
    "return self.missing(x)": "raises AttributeError: 'Net' object has no attribute 'missing'",
    "assert x.shape[0] == 77; return x": "an assertion fails",
    "return x * (1 / 0)": "raises ZeroDivisionError: division by zero",
    "return self(x)": "raises RecursionError: maximum recursion depth exceeded",
}


@pytest.mark.parametrize("body", BODIES)
def test_the_reason_and_the_line(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = module_of(tmp_path, body, monkeypatch).Net()
    text = refusal(model, torch.randn(2, 4))
    assert BODIES[body] in text
    # Where the stack overflows is not the model's choice.
    where = "bad.py:" if "Recursion" in text else f"bad.py:{LINE}: `{body}`"
    assert where in text


def test_a_line_of_the_working_directory_has_a_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = module_of(tmp_path, "raise ValueError('here')", monkeypatch).Net()
    monkeypatch.chdir(tmp_path)
    assert f", at bad.py:{LINE}: `raise" in refusal(model, torch.randn(2, 4))


def test_what_a_loss_raises_is_at_its_own_line() -> None:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(output, target[:, :3])

    text = refusal(nn.Linear(4, 4), torch.randn(2, 4), torch.randn(2, 4), loss=loss)
    assert "test_capture_errors.py:" in text
    assert "target[:, :3]" in text


def test_the_wrong_number_of_inputs_names_the_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = module_of(tmp_path, "return x", monkeypatch).Net()
    definition = f"bad.py:{LINE - 2}: `def forward(self, x):`"
    assert f"missing required positional argument: x (calling forward of {tmp_path}" in refusal(
        model
    )
    text = refusal(model, torch.randn(2, 4), torch.randn(2, 4))
    assert "Too many positional arguments" in text
    assert definition in text
    assert "argument" in refusal(model, torch.randn(2, 4), mask=torch.randn(2, 4))


def test_inputs_that_the_loss_leaves_nothing_of() -> None:
    text = refusal(nn.Linear(4, 4), torch.randn(2, 4), loss=functional.mse_loss)
    assert "given 1 input(s); the loss takes the last 1" in text


def test_without_a_line_of_the_user_the_library_line_stands_in() -> None:
    text = refusal(nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4)), torch.randn(2, 4))
    assert "linear.py:" in text


def test_errors_that_are_not_the_tracers_stay_as_they_are() -> None:
    assert capture_error(ValueError("while running")) is None


def test_an_error_of_the_planner_passes_through() -> None:
    inner = InfeasibleBudget(1, 2)
    failure = torch._dynamo.exc.BackendCompilerFailed(lambda: None, inner, None)
    assert capture_error(failure) is inner
    other = torch._dynamo.exc.BackendCompilerFailed(lambda: None, KeyError("a\nb"), None)
    assert "KeyError" in str(capture_error(other))
    assert "report" in str(capture_error(other))


def test_a_reason_that_is_not_known_keeps_its_first_sentence() -> None:
    failure = torch._dynamo.exc.Unsupported(
        "New kind\n  Explanation: Dynamo does not know `f.g.` It is new. And more.\n"
        "  Hint: Ask.\n\n  Developer debug context: f\n\n",
        real_stack=None,
    )
    assert explain(failure) == (
        "the step cannot be captured as one graph: the tracer does not know `f.g`; "
        "change that line or take it out of the step"
    )
