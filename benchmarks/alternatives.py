"""Compare memplan with what PyTorch offers, on one real training step.

    python -m benchmarks.alternatives [--sizes layers=12 batch=8] [--json FILE]

GPT-2 with dropout and AdamW: plain PyTorch, one checkpoint a block, `activation_memory_budget`
at several values, and memplan at several budgets. Each runs in a process of its own, from the
same weights and the same seed: whole-step peak from the allocator's events, median time of steps
that the processes take in turn, and how far its gradients are from those of plain PyTorch.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
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
    parser.add_argument("--example", default="gpt2", help="a file of examples/, without .py")
    parser.add_argument("--sizes", nargs="*", default=[], metavar="NAME=N", help="of the example")
    add_options(parser, rounds=3, time_limit_s=60.0)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _serve(options.one[0], Path(options.one[1]), options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_all(options.ways or WAYS, folder, options)
    Console(width=110).print(_table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def add_options(parser: argparse.ArgumentParser, rounds: int, time_limit_s: float) -> None:
    """Add what every benchmark of whole steps has."""
    parser.add_argument("--time-limit", type=float, default=time_limit_s)
    parser.add_argument("--rounds", type=int, default=rounds, help="timed steps of each, in turn")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="what times a step")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")


def measure(
    way: str, folder: Path, options: argparse.Namespace
) -> tuple[dict[str, Any], Callable[[], float]]:
    """Take two steps one way; return their figures, and what takes one more and its seconds."""
    import torch

    from memplan.codegen.peak_meter import live_bytes, measure_peak

    torch.manual_seed(0)
    names = vars(importlib.import_module(f"examples.{options.example}"))
    sizes = {name: int(value) for name, _, value in (s.partition("=") for s in options.sizes)}
    model, inputs = names["model"](**sizes), names["example_inputs"](**sizes)
    step = _step(way, model, inputs, names, folder, options)
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
    _peak_file(folder, way).write_text(str(peak_bytes))
    row = {"way": way, "peak_bytes": peak_bytes, "gradient_error": error}
    clock = CLOCKS[options.clock]

    def timed_step_s() -> float:
        started = clock()
        whole_step()
        elapsed_s = clock() - started
        model.zero_grad()
        return elapsed_s

    return row, timed_step_s


def _step(
    way: str,
    model: Any,
    inputs: tuple[Any, ...],
    names: dict[str, Any],
    folder: Path,
    options: argparse.Namespace,
) -> Callable[[], Any]:
    """Return a function that runs forward and backward one way."""
    import torch

    kind, _, value = way.partition("=")
    if kind in ("memplan", "memplan+inductor"):
        import memplan

        planned = memplan.compile(
            model,
            inputs,
            budget=_budget(value, folder),
            loss=names["loss"],
            optimizer=names["optimizer"],
            time_limit=options.time_limit,
            backend="inductor" if kind.endswith("inductor") else "eager",
        )
        return lambda: planned(*inputs).backward()
    run: Callable[..., Any] = model
    if kind == "checkpoint":
        _checkpoint_blocks(model)
    if kind in ("budget", "inductor"):
        torch._functorch.config.activation_memory_budget = float(value or 1.0)
        backend = "inductor" if kind == "inductor" else "aot_eager"
        run = torch.compile(model, backend=backend, dynamic=False)

    def step() -> Any:
        loss = names["loss"](run(inputs[0]), inputs[1])
        loss.backward()

    return step


def _budget(value: str, folder: Path) -> str | int:
    """Return a budget; of a way that was measured before, its peak, or the half of it."""
    way, _, divisor = value.partition("/")
    peak_file = _peak_file(folder, way)
    return int(peak_file.read_text()) // int(divisor or 1) if peak_file.exists() else value


def _checkpoint_blocks(model: Any) -> None:
    """Checkpoint each block: by the model's own switch, or by hand if it has none, as ResNet."""
    from torch.utils.checkpoint import checkpoint

    if model.supports_gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return
    blocks = [m for m in model.modules() if type(m).__name__ == "ResNetBottleNeckLayer"]
    if not blocks:
        raise ValueError(f"no blocks to checkpoint are known of {type(model).__name__}")
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def _peak_file(folder: Path, way: str) -> Path:
    return folder / f"{way.replace('/', ' by ')}.peak"


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


def _serve(way: str, folder: Path, options: argparse.Namespace) -> None:
    """Print the figures of one way, then the time of one more step for each line of input."""
    from memplan import InfeasibleBudget, MemplanError

    try:
        row, timed_step_s = measure(way, folder, options)
    except InfeasibleBudget as error:
        least = error.feasible_bytes or error.limit_bytes
        print(json.dumps({"way": way, "error": f"below the least, {least / 1e9:.2f} GB"}))
        return
    except MemplanError as error:
        print(json.dumps({"way": way, "error": str(error).partition(";")[0]}))
        return
    _trim()
    print(json.dumps(row), flush=True)
    for _line in sys.stdin:
        step_s = timed_step_s()
        _trim()
        print(step_s, flush=True)


def _trim() -> None:
    """Give freed memory back to the system, so that the waiting processes leave room for one."""
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def measure_all(
    ways: Sequence[str], folder: str, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Start all ways one after the other, then let them take timed steps in turn.

    `step_s` is the median; `ratio` is the median over the rounds of the time beside that of the
    first way in the same round, which the machine's moods change less.
    """
    rows: list[dict[str, Any]] = []
    ready: list[tuple[dict[str, Any], subprocess.Popen[str]]] = []
    for way in ways:
        process = _started(way, folder, options)
        assert process.stdout is not None
        line = process.stdout.readline()
        row = json.loads(line) if line else {"way": way, "error": "failed, see above"}
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
        if "error" in row:
            process.communicate()
        else:
            ready.append((row, process))
    times_s: dict[str, list[float]] = {row["way"]: [] for row, _ in ready}
    for _ in range(options.rounds):
        for row, process in ready:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            times_s[row["way"]].append(float(process.stdout.readline()))
    for row, process in ready:
        times, base = times_s[row["way"]], times_s[ready[0][0]["way"]]
        row["step_s"] = statistics.median(times)
        row["ratio"] = statistics.median(t / b for t, b in zip(times, base, strict=True))
        process.communicate()
    return rows


def _started(way: str, folder: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.alternatives", "--one", way, folder]
    command += ["--example", options.example, "--clock", options.clock]
    command += ["--time-limit", str(options.time_limit), "--sizes", *options.sizes]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


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
