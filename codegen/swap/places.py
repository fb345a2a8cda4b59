"""The stores that the steps of one module move tensors to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from memplan.codegen.swap.cuda import CudaStore, CudaStreams
from memplan.codegen.swap.disk import DiskFile
from memplan.codegen.swap.host import HostMemory
from memplan.codegen.swap.medium import Medium
from memplan.codegen.swap.store import Stores, ThreadStore
from memplan.codegen.swap.transfers import Store
from memplan.errors import UsageError
from memplan.planner.extents import planned_bytes
from memplan.planner.plan import Plan
from memplan.planner.schedule import SwapOut
from memplan.planner.tiers import Tier

_CPU = torch.device("cpu")


class SwapPlaces:
    """Makes a store for each tier that a plan uses, when the plan is made.

    Attributes:
        folder: Where the swap file of tier `disk` is; None for the folder of temporary files.
        emulates_link: Whether transfers to tier `host` last as long as the tier says.
        device: Where the tensors are that are moved.
        stores: What was made so far, by the name of the tier.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        emulates_link: bool = False,
        device: torch.device = _CPU,
    ) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self.emulates_link, self.device = emulates_link, device
        self.stores = Stores()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle where to, not what is there: stores are made again where a plan needs them."""
        return {**self.__dict__, "stores": Stores()}

    @property
    def buffer_bytes(self) -> int:
        """Memory that the stores hold for themselves."""
        return sum(store.buffer_bytes for store in self.stores.values())

    def prepare(self, plan: Plan) -> None:
        """Make sure that the copies of `plan` will find a place.

        Raises:
            SwapError: They would not: the disk is full, or a tier too small.
            UsageError: A tier has a name that nothing stands behind.
        """
        used = {step.tier for step in plan.schedule if isinstance(step, SwapOut)}
        for index in sorted(used):
            tier = plan.tiers[index]
            if tier.name not in self.stores:
                self.stores[tier.name] = self._store(tier)
            nbytes = planned_bytes(plan.graph, plan.schedule, index)
            self.stores[tier.name].reserve(nbytes)

    def _store(self, tier: Tier) -> Store:
        if self.device.type == "cpu":
            return ThreadStore(tier.name, self._medium(tier))
        if self.device.type == "cuda" and tier.name == "host":
            return CudaStore(CudaStreams(self.device), tier.capacity_bytes)
        raise UsageError(
            f"tensors on {self.device} cannot be moved to {tier.name!r}; from a GPU, use host"
        )

    def _medium(self, tier: Tier) -> Medium:
        if tier.name == "disk":
            return DiskFile(self.folder, tier.buffer_bytes // 2)
        if tier.name == "host":
            return HostMemory(tier.capacity_bytes, tier if self.emulates_link else None)
        raise UsageError(f"nothing stands behind a tier called {tier.name!r}; use host or disk")
