"""Running statistics of batch normalisation, which a training step takes only to update them."""

from __future__ import annotations

from torch import fx

from memplan.graph_capture.fx_nodes import argument


def statistics_read(node: fx.Node) -> set[fx.Node]:
    """Return the arguments of `node` whose values do not matter to its other results.

    These are the running mean and variance of a batch normalisation in training mode, or of its
    backward pass: a later run may find them updated.
    """
    if "batch_norm" not in str(node.target) or not _is_training(node):
        return set()
    found = (argument(node, name) for name in ("running_mean", "running_var"))
    return {a for a in found if isinstance(a, fx.Node)}


def _is_training(node: fx.Node) -> bool:
    return any(argument(node, name) is True for name in ("training", "train"))
