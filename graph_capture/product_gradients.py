"""Gradients of products, as plain PyTorch takes them.

Plain PyTorch divides the product by each factor where none is 0, and otherwise multiplies the
other factors; the tracer cannot see which, and always multiplies. The operators here leave that
choice to the run. Their backward pass makes the product once more.
"""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten
_library = torch.library.Library("memplan", "FRAGMENT")


def _defined(overload: Any, alike: Any, name: str) -> Any:
    """Define an operator that stands for `overload`, and its gradient; return the operator.

    Args:
        overload: An operator that takes products.
        alike: An operator with the same arguments and shapes that is traced as it is.
        name: What to call it.
    """
    arguments = str(overload._schema).partition("(")[2]
    _library.define(f"{name}({arguments}")
    _library.define(f"{name}_backward(Tensor gradient, {arguments}")

    def gradient_of(
        gradient: torch.Tensor, x: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        with torch.enable_grad():
            given = x.detach().requires_grad_()
            made = torch.autograd.grad(overload(given, *args, **kwargs), given, gradient)[0]
        # Where a factor is 0, another formula writes it, in another order.
        wanted = torch.empty_like(x)
        return made if made.stride() == wanted.stride() else wanted.copy_(made)

    def like_input(
        gradient: torch.Tensor, x: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        return torch.empty_like(x)

    backward = f"{name}_backward"
    for key in ("CPU", "CUDA"):
        _library.impl(name, overload, key)
        _library.impl(backward, gradient_of, key)
    torch.library.register_fake(f"memplan::{name}", alike, lib=_library)
    torch.library.register_fake(f"memplan::{backward}", like_input, lib=_library)
    operator = getattr(torch.ops.memplan, name).default
    backward_operator = getattr(torch.ops.memplan, backward).default

    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: Any, output: Any
    ) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.others, ctx.keywords = inputs[1:], keyword_only_inputs

    def differentiate(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        x = ctx.saved_tensors[0]
        made = backward_operator(gradient, x, *ctx.others, **ctx.keywords)
        return (made, *(None for _ in ctx.others))

    torch.library.register_autograd(
        f"memplan::{name}", differentiate, setup_context=setup_context, lib=_library
    )
    return operator


def _sum_along(x: torch.Tensor, dim: int, *args: Any, **kwargs: Any) -> torch.Tensor:
    made: torch.Tensor = _aten.sum.dim_IntList(x, [dim], *args, **kwargs)
    return made


PRODUCTS: dict[Any, Any] = {
    _aten.prod.default: _defined(_aten.prod.default, _aten.sum.default, "product"),
    _aten.prod.dim_int: _defined(_aten.prod.dim_int, _sum_along, "product_along"),
}
"""What traces an operator, above autograd."""
