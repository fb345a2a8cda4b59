"""A thread that carries out one transfer after the other."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from memplan.errors import SwapError

PATIENCE_S = 600.0
"""A transfer that takes longer than this has failed."""


class Transfer:
    """One transfer, from when it is asked for.

    Attributes:
        holds: What must stay until it has ended; None from then on.
    """

    def __init__(self, work: Callable[[], None], holds: object) -> None:
        self._work: Callable[[], None] | None = work
        self.holds: object = holds
        self._done = threading.Event()
        # Only its text: an exception holds frames, which hold handles, which hold transfers, and
        # the storage of a handle hides that circle from the garbage collector.
        self._failure = ""

    def run(self) -> None:
        """Do it, on the thread of a lane; what goes wrong is kept for `finish`."""
        assert self._work is not None
        try:
            self._work()
        except SwapError as error:
            self._failure = str(error)
        except Exception as error:
            self._failure = f"a transfer failed: {type(error).__name__}: {error}"
        finally:
            # Left set, `holds` could close a circle that only the garbage collector opens.
            self._work, holds = None, self.holds
            self.holds = None
            self._done.set()
            del holds

    def finish(self) -> None:
        """Wait until it has ended.

        Raises:
            SwapError: It failed, or takes too long; its bytes must not be used.
        """
        if not self._done.wait(PATIENCE_S):
            raise SwapError(f"a transfer has not ended after {PATIENCE_S:.0f} s")
        if self._failure:
            raise SwapError(self._failure)


class Lane:
    """Transfers in the order in which they are asked for. The thread ends with the lane."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Transfer | None] = SimpleQueue()
        thread = threading.Thread(
            target=_serve, args=(self._queue,), name=f"memplan-{name}", daemon=True
        )
        thread.start()
        weakref.finalize(self, self._queue.put, None)

    def ask(self, transfer: Transfer) -> None:
        """Take a transfer into the queue."""
        self._queue.put(transfer)


def _serve(queue: SimpleQueue[Transfer | None]) -> None:
    while (transfer := queue.get()) is not None:
        transfer.run()
        # The main thread frees what was moved; nothing may be held here while idle.
        del transfer
