"""Specs of contiguous CPU tensors, for calls that are written by hand."""

from __future__ import annotations

import torch

from memplan.graph_capture.op_call import TensorSpec


def spec(*shape: int, dtype: torch.dtype = torch.float32) -> TensorSpec:
    """Describe a contiguous tensor."""
    return TensorSpec.of(torch.empty(shape, dtype=dtype))


def ints(*shape: int) -> TensorSpec:
    """Describe a contiguous tensor of 64-bit integers."""
    return spec(*shape, dtype=torch.int64)
