"""memplan: plan and compile PyTorch training steps that fit a memory budget.

Everything public is listed in `__all__`; importing it costs nothing until a name is used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

__all__: list[str] = []

_HOME: dict[str, str] = {}

# A checkout whose links git could not make (Windows, some archives): look beside us instead.
if not (Path(__file__).parent / "planner").is_dir():  # pragma: no cover
    __path__.append(str(Path(__file__).parent.parent))


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'memplan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
