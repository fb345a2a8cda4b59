"""What the compiled inner loops of planner and solvers share: the decorator and array types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy
import numpy.typing

Integers = numpy.typing.NDArray[numpy.int64]
Floats = numpy.typing.NDArray[numpy.float64]
Flags = numpy.typing.NDArray[numpy.bool_]

_F = TypeVar("_F", bound=Callable[..., Any])
_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: _F) -> _F:
    """Compile `function` when it is first called, and keep the code on disk."""
    return cast(_F, numba.njit(cache=True)(function))


def run(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call a compiled function; Ctrl-C meanwhile is raised as what it is.

    While numba hands over the result, it comes as a `SystemError` that it caused.
    """
    try:
        return function(*args, **kwargs)
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def integers(values: Iterable[int]) -> Integers:
    """Return the values as an array."""
    return numpy.array(list(values), dtype=numpy.int64)
