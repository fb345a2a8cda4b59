"""Memory beside the device's own, to which tensors can be moved for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memplan.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One place that the device can move tensors to, over one lane out and one lane in.

    A lane carries one tensor after the other, in the order in which they are asked for.

    Attributes:
        name: What runs it: `host` or `disk`.
        capacity_bytes: The most that may lie there at any time.
        write_bytes_per_s: From the device to there.
        read_bytes_per_s: From there to the device.
        latency_ns: Time of any transfer beside that of its bytes.
        buffer_bytes: Device memory that transfers take for themselves, from the first step of a
            schedule that uses the tier to its last.

    Raises:
        UsageError: A speed is not positive, or a size or time is negative.
    """

    name: str
    capacity_bytes: int
    write_bytes_per_s: int
    read_bytes_per_s: int
    latency_ns: int = 0
    buffer_bytes: int = 0

    def __post_init__(self) -> None:
        if self.write_bytes_per_s <= 0 or self.read_bytes_per_s <= 0:
            raise UsageError(f"the speed of {self.name!r} must be positive; give it in bytes/s")
        if min(self.capacity_bytes, self.latency_ns, self.buffer_bytes) < 0:
            raise UsageError(f"a size or time of {self.name!r} is negative")

    def write_ns(self, nbytes: int) -> int:
        """Time to write `nbytes`, rounded up."""
        return self.latency_ns + -(-nbytes * 10**9 // self.write_bytes_per_s)

    def read_ns(self, nbytes: int) -> int:
        """Time to read `nbytes`, rounded up."""
        return self.latency_ns + -(-nbytes * 10**9 // self.read_bytes_per_s)


class Lanes:
    """The two copy lanes of each tier: when a transfer that is asked for now will end."""

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self.tiers = tiers
        self.write_free_ns = [0] * len(tiers)
        self.read_free_ns = [0] * len(tiers)

    def write(self, tier: int, nbytes: int, now_ns: int) -> int:
        """Take the lane out for `nbytes`; return when the write ends."""
        begin_ns = max(now_ns, self.write_free_ns[tier])
        self.write_free_ns[tier] = begin_ns + self.tiers[tier].write_ns(nbytes)
        return self.write_free_ns[tier]

    def read(self, tier: int, nbytes: int, now_ns: int) -> int:
        """Take the lane in for `nbytes`; return when the read ends."""
        begin_ns = max(now_ns, self.read_free_ns[tier])
        self.read_free_ns[tier] = begin_ns + self.tiers[tier].read_ns(nbytes)
        return self.read_free_ns[tier]
