"""Which line of the user's own code a stack of frames stands for."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from traceback import FrameSummary

import torch

_PACKAGE = Path(__file__).parent.parent
_OWN = tuple(
    f"{_PACKAGE / part}{os.sep}"
    for part in ("memplan", "graph_capture", "planner", "solvers", "codegen")
)
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_STANDARD = tuple(f"{sysconfig.get_path(part)}{os.sep}" for part in ("stdlib", "platstdlib"))
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_GENERATED = ("<eval_with_key", "<frozen ", "<string>")

_WRITTEN_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (.+)\n(?!\s*File ")\s*(.*)')


def user_line(frames: Iterable[FrameSummary]) -> str:
    r"""Return the innermost line of the user's code as `file:line: source`.

    Where no frame is the user's, the innermost one outside torch and the standard library
    stands in, then the innermost one of all; memplan's own frames never do.

    >>> user_line([FrameSummary("net.py", 3, "forward", line="x = x.item()")])
    'net.py:3: `x = x.item()`'

    Args:
        frames: Outermost first.

    Returns:
        The line; empty where there are no frames.
    """
    candidates = [f for f in frames if not f.filename.startswith((*_OWN, *_GENERATED))]
    for is_wanted in (is_users_file, _is_outside_torch, bool):
        wanted = [frame for frame in candidates if is_wanted(frame.filename)]
        if wanted:
            return _described(wanted[-1])
    return ""


def frames_in(text: str) -> Sequence[FrameSummary]:
    """Return the frames of a traceback that is written out in `text`, outermost first."""
    return [
        FrameSummary(file, int(line), name, line=source)
        for file, line, name, source in _WRITTEN_FRAME.findall(text)
    ]


def is_users_file(filename: str) -> bool:
    """Whether a file is neither memplan's, nor Python's, nor that of an installed package."""
    return (
        not filename.startswith((*_OWN, *_GENERATED))
        and _is_outside_torch(filename)
        and not _INSTALLED.search(filename)
    )


def _is_outside_torch(filename: str) -> bool:
    if filename.startswith(_STANDARD) and not _INSTALLED.search(filename):
        return False
    return not filename.startswith(_TORCH)


def _described(frame: FrameSummary) -> str:
    path = Path(frame.filename)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    source = (frame.line or "").strip()
    return f"{path}:{frame.lineno}" + (f": `{source}`" if source else "")
