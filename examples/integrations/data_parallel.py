"""Data parallel training by a plan: two processes, one model, gradients averaged by gloo.

    python examples/integrations/data_parallel.py

Each process plans its own step for its own part of the batch; `DistributedDataParallel` wraps the
planned module as it wraps any other. At the end each process compares its gradients with those of
one plain step over the whole batch.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import memplan

PROCESSES, BATCH, WIDTH = 2, 512, 64


def build() -> nn.Module:
    """Return the same model in every process."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(6)]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 1))


def whole_batch() -> torch.Tensor:
    """Return the batch that the processes share."""
    return torch.randn(PROCESSES * BATCH, WIDTH, generator=torch.Generator().manual_seed(1))


def work(rank: int, meeting_point: str) -> None:
    """Take two steps on one part of the batch and compare with a plain step on all of it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meeting_point}", rank=rank, world_size=PROCESSES)
    model = build()
    plain = copy.deepcopy(model)
    part = whole_batch()[rank * BATCH : (rank + 1) * BATCH]
    planned = memplan.compile(
        model, (part,), budget="min", loss=torch.mean, solver="greedy", profile="analytic"
    )
    parallel = DistributedDataParallel(planned)
    for _ in range(2):
        parallel.zero_grad()
        parallel(part).backward()
    plain(whole_batch()).mean().backward()
    for mine, alone in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, alone.grad)
    print(f"process {rank}: {planned.plan.recomputed_ops} runs repeated, gradients agree")
    dist.destroy_process_group()


def main() -> int:
    """Run all processes."""
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = str(Path(folder) / "meeting_point")
        multiprocessing.spawn(work, (meeting_point,), nprocs=PROCESSES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
