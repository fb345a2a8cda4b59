"""Runs real tensors in the middle of a trace, unseen by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch._guards import tracing
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def plain_execution() -> Iterator[None]:
    """Leave every fake-tensor, functional, proxy and autocast mode; keep the random generators.

    A planner runs inside AOTAutograd's partition function, where plain tensor code would be traced
    or faked. What random ops draw inside is undone at the end, so that the user's run draws the
    same numbers with and without a plan.
    """
    with ExitStack() as stack:
        stack.enter_context(tracing(None))
        stack.enter_context(_disable_current_modes())
        # Kernels in Python that stand in for operators while they are traced.
        stack.enter_context(torch._C._DisablePythonDispatcher())
        stack.enter_context(torch._C._DisableAutocast())
        # Default-device contexts and other function modes rewrite plain calls, too.
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count())))
        yield
