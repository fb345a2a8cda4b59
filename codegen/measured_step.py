"""Measures what a planned step holds, where its plan is no promise: under another lowering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from memplan.codegen.check import scalar_of
from memplan.codegen.optimized_module import OptimizedModule
from memplan.codegen.peak_meter import live_bytes, measure_peak
from memplan.graph_capture.graph import Kind


def measured_peak_bytes(
    module: OptimizedModule, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> int:
    """Run the step twice and return the peak of the second: forward, backward, what lives before.

    The optimizer's state is added as it was planned. Buffers, gradients and the generator are put
    back.
    """
    model = module.original
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    gradients = [(p, p.grad) for p in model.parameters()]
    random_state = torch.get_rng_state()

    def clear() -> None:
        for parameter, _ in gradients:
            parameter.grad = None

    def step() -> None:
        scalar_of(module(*args, **kwargs)).backward()

    try:
        clear()
        step()
        clear()
        before_bytes = live_bytes(model, args, kwargs) + module.swap_buffer_bytes
        risen_bytes = measure_peak(step, warm_up=False)
    finally:
        torch.set_rng_state(random_state)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, saved in buffers:
                buffer.copy_(saved)
    tensors = module.plan.graph.tensors
    state_bytes = sum(t.nbytes for t in tensors if t.kind is Kind.OPTIMIZER_STATE)
    return before_bytes + risen_bytes + state_bytes
