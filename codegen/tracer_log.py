"""Keeps torch's tracer from logging what is raised anyway, as one line, where a capture fails."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = tuple(
    logging.getLogger(name)
    for name in (
        "torch._dynamo.convert_frame",
        "torch._dynamo.eval_frame",
        "torch._dynamo.symbolic_convert",
        "torch._dynamo.utils",
        "torch._functorch._aot_autograd.runtime_wrappers",
        "torch._functorch.aot_autograd",
        "torch._subclasses.fake_tensor",
        "torch.fx.experimental.symbolic_shapes",
    )
)


@contextmanager
def tracer_silenced() -> Iterator[None]:
    """Leave out what these loggers say, unless the user asked for it by TORCH_LOGS."""
    before = [logger.disabled for logger in _LOGGERS]
    if "TORCH_LOGS" not in os.environ:
        for logger in _LOGGERS:
            logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(_LOGGERS, before, strict=True):
            logger.disabled = disabled


@contextmanager
def tracer_unwarned() -> Iterator[None]:
    """Leave out the tracer's warnings of what it does with a model's own code.

    Filters belong to the whole process, so this is for the first capture and not for each call.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Dynamo detected a call to a `functools.lru_cache`"
        )
        yield
