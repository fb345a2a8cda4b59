"""The operators that appear in generated graphs, as `torch.ops.memplan.*`.

They do nothing to their tensor: they make a decision of the plan visible in the graph.
"""

from __future__ import annotations

import torch

_library = torch.library.Library("memplan", "DEF")
_library.define("checkpoint(Tensor(a) x) -> Tensor(a)")
_library.impl("checkpoint", torch.ops.aten.alias.default, "CompositeExplicitAutograd")

checkpoint = torch.ops.memplan.checkpoint.default
"""Marks a tensor that is kept from the forward to the backward pass."""
