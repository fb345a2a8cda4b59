"""Names that people know: the path of the module that an FX node comes from."""

from __future__ import annotations

import re

from torch import fx

_PATH_PART = re.compile(r"\['([^']+)'\]|\.(\w+)|\[(\d+)\]")
_NOT_NAMES = frozenset({"_modules", "_parameters", "_buffers"})


def dotted_name(source: str) -> str:
    """Turn a tracer's source expression into a module path.

    >>> dotted_name("L['self']._modules['h']._modules['0']._parameters['weight']")
    'h.0.weight'
    """
    parts = [a or b or c for a, b, c in _PATH_PART.findall(source)]
    return ".".join(p for p in parts[1:] if p not in _NOT_NAMES) if len(parts) > 1 else source


def module_path(node: fx.Node) -> str:
    """Return the path of the module whose forward called the node, such as `h.0.attn`, or ''."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    for path, _ in reversed(list(stack.values())):
        return dotted_name(str(path))
    return ""
