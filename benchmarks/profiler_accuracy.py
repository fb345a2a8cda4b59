"""Compares what the profilers say of a step's operations with the step itself.

For each net: the sum of the costs of all nodes of its joint graph by the measured and the analytic
profiler, the time of the compiled step, and how far the two order the operations alike (views
left out).
Two small nets, on which the model of a CPU was fitted, and what is named of the examples:
`python -m benchmarks.profiler_accuracy resnet50 gpt2`, on an idle machine; `--threads 2` and so on.
With `--cpu-time` processor time is measured instead, which on one thread other programs hardly
disturb.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.fill_readme import ROOT
from memplan.graph_capture.analytic_profiler import AnalyticProfiler, traffic_bytes
from memplan.graph_capture.devices import find_device
from memplan.graph_capture.measured_profiler import MeasuredProfiler
from memplan.model_file import ModelFile, read_model_file
from memplan.units import format_ns
from tests.joint_graphs import JointGraph, attention_block, conv_net

STEPS = 7
STEPS_OF_EXAMPLES = 3


def conv_case() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a net of two convolutions, 64 channels, on 8 images of 64 x 64."""
    return conv_net(width=64), (torch.randn(8, 3, 64, 64), torch.randint(10, (8,)))


def attention_case() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a transformer block, 4 x 256 tokens, with a vocabulary of 8,000."""
    tokens = torch.randint(8000, (2, 4, 256))
    return attention_block(vocabulary=8000, width=384, heads=6), (tokens[0], tokens[1])


class WithLoss(nn.Module):
    """A model and its loss as one module that takes positional inputs."""

    def __init__(self, file: ModelFile) -> None:
        super().__init__()
        self.model, self.loss, self.names = file.model, file.loss, tuple(file.kwargs)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        split = len(inputs) - len(self.names)
        named = dict(zip(self.names, inputs[split:], strict=True))
        assert self.loss is not None
        targets = len(inspect.signature(self.loss).parameters) - 1
        output = self.model(*inputs[: split - targets], **named)
        result: torch.Tensor = self.loss(output, *inputs[split - targets : split])
        return result


def example_case(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return an example with its loss, and its inputs."""
    file = read_model_file(ROOT / "examples" / f"{name}.py")
    return WithLoss(file), (*file.args, *file.kwargs.values())


CASES: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "conv net": conv_case,
    "attention block": attention_case,
}


def main() -> None:
    """Print one line a net."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="examples to compare as well")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="processor time, on one thread")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.cpu_time:
        # The profiler reads this clock as well.
        time.perf_counter_ns = time.process_time_ns
    cases = CASES | {name: partial(example_case, name) for name in options.names}
    for name, make in cases.items():
        torch.manual_seed(0)
        model, args = make()
        joint = JointGraph(model)
        steps = STEPS if name in CASES else STEPS_OF_EXAMPLES
        times_ns = [_time_step_ns(joint, args) for _ in range(steps + 1)][1:]
        # The fastest step, as the profiler's figures, too, are those of an undisturbed run.
        step_ns = min(times_ns)
        calls = joint.calls()
        with tempfile.TemporaryDirectory() as folder:
            profiler = MeasuredProfiler(device=find_device("cpu"), folder=Path(folder))
            measured = [cost.time_ns for cost in profiler.profile(calls)]
        modelled = [cost.time_ns for cost in AnalyticProfiler(profiler.device).profile(calls)]
        work = [i for i, call in enumerate(calls) if traffic_bytes(call)]
        correlation = rank_correlation([measured[i] for i in work], [modelled[i] for i in work])
        print(
            f"{name}: {len(measured)} nodes; step {format_ns(step_ns)}; "
            f"measured ops {format_ns(sum(measured))} ({sum(measured) / step_ns:.0%}); "
            f"analytic {format_ns(sum(modelled))} ({sum(modelled) / step_ns:.0%}); "
            f"rank correlation {correlation:.2f}",
            flush=True,
        )


def rank_correlation(first: list[int], second: list[int]) -> float:
    """Return Spearman's coefficient; equal values share their mean rank."""
    return statistics.correlation(_ranks(first), _ranks(second))


def _ranks(values: list[int]) -> list[float]:
    ordered = sorted(values)
    return [(bisect_left(ordered, v) + bisect_right(ordered, v)) / 2 for v in values]


def _time_step_ns(joint: JointGraph, args: tuple[torch.Tensor, ...]) -> int:
    start_ns = time.perf_counter_ns()
    joint.compiled(*args).backward()
    elapsed_ns = time.perf_counter_ns() - start_ns
    for parameter in joint.model.parameters():
        parameter.grad = None
    return elapsed_ns


if __name__ == "__main__":
    main()
