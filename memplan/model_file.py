"""The Python file that a user names on the command line: a model and what it is called with."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from memplan.errors import MemplanError, UsageError

EXAMPLE = """\
    import torch

    def model():
        return torch.nn.Linear(512, 512)
    def example_inputs():
        return (torch.randn(64, 512), torch.randn(64, 512))
    loss = torch.nn.functional.mse_loss"""


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """What the file defines.

    Attributes:
        model: The module, on the device it was made on.
        args: Positional inputs; those of the loss come last.
        kwargs: Keyword inputs of the model.
        loss: `loss(output, *targets)`, or None: the model returns the loss, or any output.
        optimizer: `optimizer(params)`, or None.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Callable[..., Any] | None
    optimizer: Callable[..., Any] | None


def read_model_file(path: Path) -> ModelFile:
    """Run the file and return what it defines.

    Raises:
        UsageError: The file is not there, raises, or lacks a name; the text shows what is wanted.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the Python file that defines the model")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    with _beside(path):
        return _read(path)


def _read(path: Path) -> ModelFile:
    names = vars(_run(path))
    for wanted in ("model", "example_inputs"):
        if wanted not in names:
            raise UsageError(f"{path} defines no {wanted!r}; a model file looks like\n\n{EXAMPLE}")
    model = names["model"]
    if not isinstance(model, nn.Module):
        model = _call(path, "model", model)
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"model() in {path} returns a {type(model).__name__}, not a torch.nn.Module"
        )
    inputs = names["example_inputs"]
    args, kwargs = _split(path, _call(path, "example_inputs", inputs))
    return ModelFile(
        model=model,
        args=args,
        kwargs=kwargs,
        loss=_callable(path, names, "loss"),
        optimizer=_callable(path, names, "optimizer"),
    )


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Let the file import what lies beside it, as a script may."""
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _run(path: Path) -> ModuleType:
    # A file that is called like a module that is there, such as json.py, must not replace it.
    name = path.stem if path.stem not in sys.modules else f"memplan_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Classes of the file must be found by name, by pickle and by Dynamo.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except MemplanError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be run: {_where(path, error)}") from error
    return module


def _call(path: Path, name: str, value: Any) -> Any:
    if not callable(value):
        return value
    try:
        return value()
    except MemplanError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{name}() in {path} failed: {_where(path, error)}") from error


def _callable(path: Path, names: Mapping[str, Any], name: str) -> Callable[..., Any] | None:
    value = names.get(name)
    if value is not None and not callable(value):
        raise UsageError(f"{name!r} in {path} must be a function, not {type(value).__name__}")
    return value


def _split(path: Path, inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return positional and keyword inputs: a tuple, a dict, or a tuple of both."""
    if isinstance(inputs, Mapping):
        return (), inputs
    if isinstance(inputs, (tuple, list)):
        if len(inputs) == 2 and isinstance(inputs[0], tuple) and isinstance(inputs[1], dict):
            return inputs[0], inputs[1]
        return tuple(inputs), {}
    if hasattr(inputs, "shape"):
        return (inputs,), {}
    raise UsageError(
        f"example_inputs() in {path} must return a tuple of inputs or a dict of keyword inputs, "
        f"not {type(inputs).__name__}"
    )


def _where(path: Path, error: BaseException) -> str:
    """Return the error in one line, with the line of the user's file that led to it."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).name == path.name]
    text = " ".join(str(error).split()) or type(error).__name__
    at = f"line {lines[-1]}: " if lines else ""
    return f"{at}{type(error).__name__}: {text}"
