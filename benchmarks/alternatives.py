"""Compare memplan with what PyTorch offers, on one real training step.

    python -m benchmarks.alternatives [--layers 12] [--batch 8] [--json FILE]

GPT-2 with dropout and AdamW: plain PyTorch, one checkpoint a block, `activation_memory_budget`
at several values, and memplan at several budgets. Each runs in a process of its own, from the
same weights and the same seed: whole-step peak from the allocator's events, time of a step, and
how far its gradients are from those of plain PyTorch.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
WAYS = (
    "plain",
    "checkpoint",
    "budget=0.5",
    "budget=0.1",
    "memplan=70%",
    "memplan=60%",
    "memplan=50%",
)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ways", nargs="*", help=f"of {', '.join(WAYS)}; all if none is named")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        from memplan import InfeasibleBudget

        try:
            row = measure(options.one[0], Path(options.one[1]), options)
        except InfeasibleBudget as error:
            least = error.feasible_bytes or error.limit_bytes
            row = {"way": options.one[0], "error": f"below the least, {least / 1e9:.2f} GB"}
        print(json.dumps(row))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rows = [_in_own_process(way, folder, options) for way in (options.ways or WAYS)]
    Console(width=110).print(_table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def measure(way: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Take three steps one way and return what they took."""
    import torch

    from memplan.codegen.peak_meter import live_bytes, measure_peak

    torch.manual_seed(0)
    names = vars(importlib.import_module("examples.gpt2"))
    sizes = {"layers": options.layers, "batch": options.batch}
    model, inputs = names["model"](**sizes), names["example_inputs"](**sizes)
    step = _step(way, model, inputs, names, options)
    optimizer = names["optimizer"](model.parameters())
    torch.manual_seed(1)
    step()
    error = _error([p.grad for p in model.parameters()], folder / "gradients.pt", way)
    optimizer.step()
    model.zero_grad()

    def whole_step() -> Any:
        output = step()
        optimizer.step()
        return output

    live = live_bytes(model, optimizer, inputs)
    peak_bytes = live + measure_peak(whole_step, warm_up=False)
    model.zero_grad()
    started = time.perf_counter()
    whole_step()
    return {
        "way": way,
        "peak_bytes": peak_bytes,
        "step_s": time.perf_counter() - started,
        "gradient_error": error,
    }


def _step(
    way: str, model: Any, inputs: tuple[Any, ...], names: dict[str, Any], options: Any
) -> Callable[[], Any]:
    """Return a function that runs forward and backward one way."""
    import torch

    kind, _, value = way.partition("=")
    run: Callable[..., Any] = model
    if kind == "checkpoint":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if kind == "memplan":
        import memplan

        optimizer = names["optimizer"]
        planned = memplan.compile(
            model,
            inputs,
            budget=value,
            loss=names["loss"],
            optimizer=optimizer,
            time_limit=options.time_limit,
        )
        return lambda: planned(*inputs).backward()
    if kind == "budget":
        torch._functorch.config.activation_memory_budget = float(value)
        run = torch.compile(model, backend="aot_eager", dynamic=False)

    def step() -> Any:
        loss = names["loss"](run(inputs[0]), inputs[1])
        loss.backward()

    return step


def _error(gradients: list[Any], reference: Path, way: str) -> float:
    """Return the largest relative difference of a gradient from plain PyTorch's."""
    import torch

    if way == "plain":
        torch.save(gradients, reference)
        return 0.0
    if not reference.exists():
        return float("nan")
    pairs = zip(gradients, torch.load(reference), strict=True)
    return max(float((a - b).norm() / (b.norm() + 1e-30)) for a, b in pairs)


def _in_own_process(way: str, folder: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.alternatives", "--one", way, folder]
    command += ["--layers", str(options.layers), "--batch", str(options.batch)]
    command += ["--time-limit", str(options.time_limit)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"way": way, "error": f"exit code {done.returncode}"}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None)
    for column in ("way", "peak", "of plain", "step", "of plain", "gradient error"):
        table.add_column(column, justify="left" if column == "way" else "right")
    base = next((r for r in rows if r["way"] == "plain" and "error" not in r), None)
    for row in rows:
        if "error" in row:
            table.add_row(row["way"], row["error"])
            continue
        shares = ("", "")
        if base is not None:
            shares = (
                f"{row['peak_bytes'] / base['peak_bytes']:.0%}",
                f"x {row['step_s'] / base['step_s']:.2f}",
            )
        table.add_row(
            row["way"],
            f"{row['peak_bytes'] / 1e9:.2f} GB",
            shares[0],
            f"{row['step_s']:.1f} s",
            shares[1],
            f"{row['gradient_error']:.1e}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
