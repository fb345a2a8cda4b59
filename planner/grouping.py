"""Modules of repeated layers taken together, for tables that people read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


def grouped(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return amounts by module with those summed that differ in indices only, largest first.

    >>> grouped({"h.0.attn": 2, "h.1.attn": 3, "head": 4})
    {'h.*.attn (2)': 5, 'head': 4}
    """
    sums: Counter[str] = Counter()
    members: dict[str, list[str]] = {}
    for module, amount in amounts.items():
        pattern = _INDEX.sub("*", module)
        sums[pattern] += amount
        members.setdefault(pattern, []).append(module)
    named = {
        names[0] if len(names) == 1 else f"{pattern} ({len(names)})": sums[pattern]
        for pattern, names in members.items()
    }
    return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))
