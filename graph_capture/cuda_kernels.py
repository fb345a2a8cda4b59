"""What torch runs on a CUDA device for operators that choose their kernel by the device.

torch's CPU build cannot trace the backward pass of fake CUDA tensors. Tensors that have no memory
stand for them on the CPU, and what would choose a CPU kernel is traced as torch chooses on CUDA:
the fused kernels' shapes are known without such a device.
Source: `sdp_utils.cpp` and `attention.cpp` of torch 2.13: flash attention for half precision
    without a mask, memory-efficient attention for what it does not take.
"""

from __future__ import annotations

import math

import torch
from torch._C import DispatchKey

_aten = torch.ops.aten
CUDA_ATTENTION = _aten.scaled_dot_product_attention.default
_HALF = (torch.float16, torch.bfloat16)
_MOST_FLASH_WIDTH = 256


def cuda_dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Trace dropout with its fused kernel, which keeps a mask of one byte an element."""
    if train and 0 < p < 1:
        dropped: torch.Tensor = _aten.native_dropout(x, p, train)[0]
        return dropped
    plain: torch.Tensor = _aten.dropout.default._op_dk(
        DispatchKey.CompositeImplicitAutograd, x, p, train
    )
    return plain


def cuda_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Trace attention with the fused kernel that torch would choose.

    Odd widths, and heads that several queries share where there is a mask, are left to the kernel
    of the CPU.
    """
    output: torch.Tensor
    fits = query.dim() == 4 and all(x.shape[-1] % 8 == 0 for x in (query, value))
    fits = fits and query.shape[-1] == value.shape[-1] <= _MOST_FLASH_WIDTH
    is_flash = attn_mask is None and query.dtype in _HALF
    # Only flash attention reads heads that several queries share as they are.
    fits = fits and (is_flash or not enable_gqa)
    if not fits:
        output = CUDA_ATTENTION._op_dk(
            DispatchKey.CompositeImplicitAutograd,
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
    elif is_flash:
        output = _aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, scale=scale
        )[0]
    else:
        bias = _bias(attn_mask, query.dtype)
        if bias is not None:
            bias = bias.expand(*query.shape[:3], key.shape[2])
        output = _aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, True, dropout_p, is_causal, scale=scale
        )[0]
    return output


def _bias(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Return what is added to the scores; torch makes it of a mask of booleans at every call."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    nothing = torch.zeros_like(mask, dtype=dtype)
    return nothing.masked_fill(mask.logical_not(), -math.inf)
