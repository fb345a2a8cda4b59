"""How torch's tracer is set while a planned module runs, and so while it is captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

_SETTINGS: dict[str, Any] = {
    # Each new input shape is one more entry in Dynamo's cache, and one more plan.
    "recompile_limit": 64,
    "allow_rnn": True,
    # It would cut the step into pieces inside DistributedDataParallel.
    "optimize_ddp": False,
    # A hook that is added or removed later would not be noticed.
    "skip_nnmodule_hook_guards": False,
    # It would write addcmul_ and addcdiv_ as formulas, which round otherwise than their kernels.
    "enable_dynamo_decompositions": False,
}


@contextmanager
def tracer_settings() -> Iterator[None]:
    """Have the tracer capture whole steps, of the operators that plain PyTorch runs."""
    # The same formula for addcdiv has no setting.
    handlers = TorchInGraphFunctionVariable._get_handlers()
    formula = handlers.pop(torch.addcdiv, None)
    try:
        with torch._dynamo.config.patch(**_SETTINGS):
            yield
    finally:
        if formula is not None:
            handlers[torch.addcdiv] = formula
