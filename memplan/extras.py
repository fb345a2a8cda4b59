"""Which extra of this package brings a library that is not installed."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

_EXTRA = re.compile(r"""(?P<library>[\w.-]+).*;\s*extra\s*==\s*["'](?P<extra>[\w-]+)["']""")


def extra_of(module: str) -> str | None:
    """Return the extra that brings `module`, as the installed package's metadata say.

    >>> extra_of("matplotlib.pyplot"), extra_of("no_such_library")
    ('plots', None)
    """
    try:
        wanted = requires("memplan") or []
    except PackageNotFoundError:
        return None
    found = [match for line in wanted if (match := _EXTRA.match(line))]
    library = module.partition(".")[0].replace("_", "-").lower()
    extras = [m["extra"] for m in found if m["library"].lower() == library and m["extra"] != "dev"]
    return extras[0] if extras else None


def install_hint(error: ImportError) -> str:
    """Return what to run after a failed import, with a comma before it; empty if no extra helps.

    >>> install_hint(ModuleNotFoundError("No module named 'peft'", name="peft"))
    ", run `pip install 'memplan[peft]'`"
    """
    extra = extra_of(error.name) if isinstance(error, ModuleNotFoundError) and error.name else None
    return f", run `pip install 'memplan[{extra}]'`" if extra else ""
