"""How much memory of its own a solver takes."""

from __future__ import annotations

import sys


def peak_rss_bytes() -> int:
    """Return the most memory that this process ever held; 0 where the system does not tell.

    Between two calls it grows by what the code between them took beyond that.
    """
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024
