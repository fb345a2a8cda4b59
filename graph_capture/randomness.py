"""Which operations draw random numbers or have effects beyond their outputs."""

from __future__ import annotations

import torch
from torch import fx

from memplan.graph_capture.fx_nodes import argument, tensor_values

# Bytes of a generator's state, as torch.get_rng_state and torch.cuda.get_rng_state return it.
STATE_BYTES = {"cpu": 5056, "cuda": 16}


def is_random(node: fx.Node) -> bool:
    """Whether the node draws from the global generator.

    Attention operators carry the tag for their dropout alone: without dropout they draw nothing.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    return argument(node, "dropout_p") != 0.0


def has_side_effect(node: fx.Node) -> bool:
    """Whether a second run could be noticed: mutation, assertions, unknown custom operators.

    ATen and prims operators without a written argument are pure. Any other operator is only
    trusted where its package registered it with tags that say so.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        # Inductor's seeds, of which all its random numbers are functions.
        if target.namespace == "prims" and target._opname in ("inductor_seed", "inductor_seeds"):
            return True
        if target._schema.is_mutable:
            return True
        if target.namespace in ("aten", "prims", "inductor_prims", "memplan"):
            return not target._schema.returns
        return True
    return isinstance(target, torch._ops.HigherOrderOperator)


def device_type_of(node: fx.Node) -> str:
    """Return the device type that the node's outputs live on."""
    return next((v.device.type for v in tensor_values(node) if v is not None), "cpu")
