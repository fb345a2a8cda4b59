"""What a profiler is: it says what each operation costs on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from memplan.graph_capture.op_call import OpCall

Progress = Callable[[int, int], None]
"""Called with (distinct operations done, distinct operations in all)."""


@dataclass(frozen=True, slots=True)
class OpCost:
    """What one operation takes.

    Attributes:
        time_ns: From call to result, the release of what it does not return included.
        workspace_bytes: The most it holds at any time beyond its inputs and its outputs.
        retained_bytes: What its outputs keep beyond their shapes: some kernels return a scalar
            in the buffer that they worked in.
    """

    time_ns: int
    workspace_bytes: int = 0
    retained_bytes: int = 0


class Profiler(Protocol):
    """Prices operations one by one, each as if it ran alone."""

    def profile(self, calls: Sequence[OpCall], progress: Progress | None = None) -> list[OpCost]:
        """Return the cost of each call, in the order of `calls`.

        Raises:
            ProfileError: An operation can be neither run nor priced; the text names it.
        """
        ...
