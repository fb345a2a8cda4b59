"""What the compiled inner loops of planner and solvers share: the decorator and array types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import numba
import numpy
import numpy.typing

Integers = numpy.typing.NDArray[numpy.int64]
Floats = numpy.typing.NDArray[numpy.float64]
Flags = numpy.typing.NDArray[numpy.bool_]

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(function: _F) -> _F:
    """Compile `function` when it is first called, and keep the code on disk."""
    return cast(_F, numba.njit(cache=True)(function))


def integers(values: Iterable[int]) -> Integers:
    """Return the values as an array."""
    return numpy.array(list(values), dtype=numpy.int64)
