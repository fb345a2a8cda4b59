"""What a place that tensors are moved to has to offer to the graphs."""

from __future__ import annotations

from typing import Protocol

import torch


class Copy:
    """A tensor's storage outside the device, with all that is needed to make it again.

    Attributes:
        store: What made it and reads it back.
    """

    store: Store

    def release(self) -> None:
        """Let go of the tensor, once it is written."""
        raise NotImplementedError


class Read:
    """A copy on its way back."""

    def finish(self) -> torch.Tensor:
        """Hand the tensor over, once it is there."""
        raise NotImplementedError


class Store(Protocol):
    """One tier of one device."""

    @property
    def buffer_bytes(self) -> int:
        """Memory of the device that transfers take for themselves."""
        ...

    def reserve(self, nbytes: int) -> None:
        """Make sure that copies with so many bytes in all will find a place.

        Raises:
            SwapError: They will not.
        """
        ...

    def write(self, tensor: torch.Tensor) -> Copy:
        """Start to write the storage of `tensor`, which stays until `Copy.release`."""
        ...

    def read(self, copy: Copy) -> Read:
        """Take memory for a copy and start to read it."""
        ...
