"""Files that are either the old one or the whole new one, never half of it."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text` in UTF-8; a reader or a crash never sees a part of it.

    Raises:
        OSError: The folder cannot be written to, or is full; the old file is then untouched.
    """
    # In the same folder: a rename is atomic only within one file system.
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
