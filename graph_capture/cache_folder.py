"""Where memplan keeps what it may lose."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return `$MEMPLAN_CACHE_DIR` or the folder for memplan in the user's cache."""
    chosen = os.environ.get("MEMPLAN_CACHE_DIR")
    return Path(chosen) if chosen else platformdirs.user_cache_path("memplan")
