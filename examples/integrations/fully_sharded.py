"""FSDP2: plan each block, then shard it. Two processes, gradients reduced by gloo.

    python examples/integrations/fully_sharded.py

The order matters: `fully_shard` gathers the parameters of a block in hooks around it, and inside
them the planned block finds them whole. A module that is sharded first is refused by
`memplan.compile`, because its hooks cannot be part of a traced step.

The plan of a block is what one process holds for it while it runs: its parameters and gradients
gathered, its activations, and the optimizer's state of its own shards alone. At the end each
process compares its gradients with those of one plain step over the whole batch.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.distributed.fsdp import fully_shard

import memplan
from memplan.graph_capture.graph import Kind

PROCESSES, BATCH, WIDTH, BLOCKS = 2, 512, 32, 3


def build() -> nn.Sequential:
    """Return the same model in every process."""
    torch.manual_seed(0)
    return nn.Sequential(*(block() for _ in range(BLOCKS)))


def block() -> nn.Module:
    """Return one block."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*layers)


def whole_batch() -> torch.Tensor:
    """Return the batch that the processes share."""
    return torch.randn(PROCESSES * BATCH, WIDTH, generator=torch.Generator().manual_seed(1))


def optimizer_of_shards(module: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of what this process will hold of the parameters."""
    rank = dist.get_rank()
    return torch.optim.AdamW(
        [nn.Parameter(p.detach().chunk(PROCESSES)[rank].clone()) for p in module.parameters()]
    )


def work(rank: int, meeting_point: str) -> None:
    """Train on one part of the batch and compare with a plain step on all of it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meeting_point}", rank=rank, world_size=PROCESSES)
    model, plain = build(), build()
    part = whole_batch()[rank * BATCH : (rank + 1) * BATCH]
    for place in range(BLOCKS):
        planned = memplan.compile(
            model[place],
            # All but the first block hand a gradient to the one before.
            (part.clone().requires_grad_(place > 0),),
            budget="min",
            optimizer=optimizer_of_shards(model[place]),
            solver="greedy",
            profile="analytic",
        )
        model[place] = fully_shard(planned)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model(part).square().mean().backward()
    plain(whole_batch()).square().mean().backward()
    for mine, alone in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), alone.grad)
    optimizer.step()
    state_bytes = sum(
        t.to_local().nbytes
        for state in optimizer.state.values()
        for t in state.values()
        if hasattr(t, "to_local")
    )
    tensors = [t for planned in model for t in planned.plan.graph.tensors]
    counted_bytes = sum(t.nbytes for t in tensors if t.kind is Kind.OPTIMIZER_STATE)
    # Beside its shards each parameter has a count of steps, one float.
    assert counted_bytes == state_bytes + 4 * len(list(model.parameters()))
    runs = sum(planned.plan.recomputed_ops for planned in model)
    print(f"process {rank}: {runs} runs repeated, {state_bytes} bytes of state, gradients agree")
    dist.destroy_process_group()


def main() -> int:
    """Run all processes."""
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = str(Path(folder) / "meeting_point")
        multiprocessing.spawn(work, (meeting_point,), nprocs=PROCESSES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
