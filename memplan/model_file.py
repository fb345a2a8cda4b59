"""The Python file that a user names on the command line: a model and what it is called with."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from memplan.errors import MemplanError, UsageError
from memplan.extras import install_hint
from memplan.graph_capture.without_memory import without_memory

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
        path: The file.
        make_inputs: Its `example_inputs`.
        mode: The mode in which all of it was made, where no memory is taken; else None.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Callable[..., Any] | None
    optimizer: Callable[..., Any] | None
    path: Path
    make_inputs: Any
    mode: FakeTensorMode | None = None

    def with_batch(self, batch: int) -> ModelFile:
        """Return the same model with inputs of another batch size.

        Raises:
            UsageError: `example_inputs` takes no argument `batch`, or fails with it.
        """
        if not _takes(self.make_inputs, "batch"):
            raise UsageError(
                f"example_inputs() in {self.path} takes no batch size; "
                "write it as def example_inputs(batch=8)"
            )
        with _in(self.mode):
            made = _call(self.path, "example_inputs", self.make_inputs, batch=batch)
        args, kwargs = _split(self.path, made)
        return replace(self, args=args, kwargs=kwargs)


def read_model_file(path: Path, *, offline: bool = False) -> ModelFile:
    """Run the file and return what it defines.

    Args:
        path: The file.
        offline: Make model and inputs of tensors that have shapes and no memory. The model can
            be planned but not run.

    Raises:
        UsageError: The file is not there, raises, or lacks a name; the text shows what is wanted.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the Python file that defines the model")
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    with _beside(path):
        return _read(path, FakeTensorMode() if offline else None)


def _read(path: Path, mode: FakeTensorMode | None) -> ModelFile:
    names = vars(_run(path))
    for wanted in ("model", "example_inputs"):
        if wanted not in names:
            raise UsageError(f"{path} defines no {wanted!r}; a model file looks like\n\n{EXAMPLE}")
    model = names["model"]
    if not isinstance(model, nn.Module):
        with _in(mode):
            model = _call(path, "model", model)
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"model() in {path} returns a {type(model).__name__}, not a torch.nn.Module"
        )
    inputs = names["example_inputs"]
    with _in(mode):
        made = _call(path, "example_inputs", inputs)
    args, kwargs = _split(path, made)
    return ModelFile(
        model=model,
        args=args,
        kwargs=kwargs,
        loss=_callable(path, names, "loss"),
        optimizer=_callable(path, names, "optimizer"),
        path=path,
        make_inputs=inputs,
        mode=mode,
    )


def _in(mode: FakeTensorMode | None) -> AbstractContextManager[Any]:
    return nullcontext() if mode is None else without_memory(mode)


def _takes(function: Any, name: str) -> bool:
    if not callable(function):
        return False
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == name or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


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


def _call(path: Path, name: str, value: Any, **arguments: Any) -> Any:
    if not callable(value):
        return value
    try:
        return value(**arguments)
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
    if isinstance(error, ImportError):
        text += install_hint(error)
    if isinstance(error, DataDependentOutputException):
        text = "it reads a value of a tensor, and a model captured without memory has none"
    at = f"line {lines[-1]}: " if lines else ""
    return f"{at}{type(error).__name__}: {text}"
