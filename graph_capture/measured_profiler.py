"""Prices operations by running each one, on the machine that is there."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan.errors import ProfileError
from memplan.graph_capture.allocations import record_allocations
from memplan.graph_capture.analytic_profiler import AnalyticProfiler
from memplan.graph_capture.cache_folder import cache_folder
from memplan.graph_capture.cost_cache import CostCache
from memplan.graph_capture.device import Device
from memplan.graph_capture.op_call import OpCall, TensorSpec
from memplan.graph_capture.plain_execution import plain_execution
from memplan.graph_capture.profile import OpCost, Progress
from memplan.graph_capture.sample_arguments import sample_arguments

_LOG = logging.getLogger(__name__)

_FORMAT = "2"
_LEAST_REPEATS = 3
_MOST_REPEATS = 200
_ENOUGH_NS = 20_000_000
_TOO_LONG_NS = 1_000_000_000
_MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProfiler:
    """Runs every distinct operation with real tensors and keeps what it took on disk.

    An operation that cannot run alone (its arguments obey rules that shapes do not tell, or there
    is no memory for it) is priced by the analytic model instead, with a warning that names it: an
    estimate is enough to plan with, and one odd operation should not cost the user the plan.

    Attributes:
        device: Prices what cannot be run; operations run where their tensors are.
        folder: Where costs are kept between runs; None for `cache_folder()`.
        fresh: Measure everything again, and keep the new costs.
        strict: Raise where an operation cannot be run, instead of pricing it.
        time_limit_s: Price the operations not measured by then.
    """

    device: Device
    folder: Path | None = None
    fresh: bool = False
    strict: bool = False
    time_limit_s: float = 600.0
    _analytic: AnalyticProfiler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_analytic", AnalyticProfiler(self.device))

    def profile(self, calls: Sequence[OpCall], progress: Progress | None = None) -> list[OpCost]:
        """Return the measured cost of each call; equal calls are measured once.

        May be called while torch traces a model: see `plain_execution`.

        Raises:
            ProfileError: `strict`, and an operation cannot be run; or a torch profiler is active.
        """
        record_allocations(lambda: None)  # raises at once where nothing can be measured
        cache = CostCache(self.folder or cache_folder(), _environment())
        known = {} if self.fresh else cache.read()
        distinct = {call.key: call for call in calls}
        missing = {key: call for key, call in distinct.items() if key not in known}
        deadline = time.monotonic() + self.time_limit_s
        measured: dict[str, OpCost] = {}
        try:
            with plain_execution(), torch.no_grad():
                for done, (key, call) in enumerate(missing.items(), len(distinct) - len(missing)):
                    if progress:
                        progress(done, len(distinct))
                    cost = self._measure(call, deadline)
                    if cost is not None:
                        measured[key] = cost
        finally:
            # What an interrupted run has measured is as good as any.
            cache.add(measured)
        if progress:
            progress(len(distinct), len(distinct))
        known |= measured
        left = [call for key, call in missing.items() if key not in measured]
        known |= {c.key: cost for c, cost in zip(left, self._priced(left, deadline), strict=True)}
        return [known[call.key] for call in calls]

    def _priced(self, calls: Sequence[OpCall], deadline: float) -> list[OpCost]:
        if calls and time.monotonic() > deadline:
            _LOG.warning(
                "measuring stopped after %g s; %d operations are priced by the model of %s",
                self.time_limit_s,
                len(calls),
                self.device.name,
            )
        return self._analytic.profile(calls)

    def _measure(self, call: OpCall, deadline: float) -> OpCost | None:
        """Run one call; None where it cannot be run, or not any more."""
        if time.monotonic() > deadline:
            return None
        try:
            return _cost_of(call)
        except Exception as error:  # an operation of the user's may raise anything
            reason = str(error).strip().partition("\n")[0]
            if self.strict:
                raise ProfileError(f"cannot run {call.key} on its own: {reason}") from error
            _LOG.warning(
                "cannot run %s on its own, so its cost is estimated: %s", call.key, reason
            )
            return None


def _cost_of(call: OpCall) -> OpCost:
    """Run a call once to warm up, once for its memory and several times for its time.

    Raises:
        RuntimeError: The machine has too little memory for it, or the operation says no.
    """
    _check_memory(call)
    args, kwargs = sample_arguments(call)
    on_cuda = any(spec.device_type == "cuda" for spec in (*call.inputs, *call.outputs))

    def run() -> Any:
        return call.target(*args, **kwargs)

    retained_bytes = _retained_bytes(run(), (args, kwargs))
    if on_cuda:
        return OpCost(_cuda_time_ns(run), _cuda_workspace_bytes(run), retained_bytes)
    return OpCost(_time_ns(run), _workspace_bytes(run), retained_bytes)


def _retained_bytes(result: object, given: object) -> int:
    """Return what the storages of the results hold beyond the results themselves."""
    old = {t.untyped_storage()._cdata for t in _tensors(given)}
    new = [t for t in _tensors(result) if t.untyped_storage()._cdata not in old]
    held_bytes = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in new}
    needed_bytes = sum(TensorSpec.of(t).extent * t.dtype.itemsize for t in new)
    return max(0, sum(held_bytes.values()) - needed_bytes)


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _workspace_bytes(run: Callable[[], Any]) -> int:
    """Return what `run` holds at its worst beyond what it returns."""
    result, allocations = record_allocations(run)
    del result  # alive until here: its bytes are those held at the end
    return allocations.peak_bytes - max(allocations.held_bytes, 0)


def _time_ns(run: Callable[[], Any]) -> int:
    """Return the typical time of `run`.

    It runs three times at least and until 20 ms are spent, but stops after one second.
    """
    times_ns: list[int] = []
    while not _enough(times_ns):
        start_ns = time.perf_counter_ns()
        run()
        times_ns.append(time.perf_counter_ns() - start_ns)
    return _typical(times_ns)


def _typical(times_ns: Sequence[int]) -> int:
    """Return the lower quartile: a busy machine makes runs too long, never too short."""
    return max(1, sorted(times_ns)[len(times_ns) // 4])


def _enough(times_ns: Sequence[int]) -> bool:
    total_ns = sum(times_ns)
    if len(times_ns) >= _LEAST_REPEATS and total_ns >= _ENOUGH_NS:
        return True
    return total_ns >= _TOO_LONG_NS or len(times_ns) >= _MOST_REPEATS


def _cuda_time_ns(run: Callable[[], Any]) -> int:
    """Return the typical time on the device, by events; a launch that takes longer counts."""
    times_ns: list[int] = []
    while not _enough(times_ns):
        before = torch.cuda.Event(enable_timing=True)
        after = torch.cuda.Event(enable_timing=True)
        before.record()
        run()
        after.record()
        after.synchronize()
        times_ns.append(round(before.elapsed_time(after) * 1e6))
    return _typical(times_ns)


def _cuda_workspace_bytes(run: Callable[[], Any]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    torch.cuda.synchronize()
    held_bytes = torch.cuda.memory_allocated()
    del result
    return max(0, torch.cuda.max_memory_allocated() - held_bytes)


def _check_memory(call: OpCall) -> None:
    """Refuse what the kernel would kill the process for.

    Raises:
        RuntimeError: Inputs and outputs need most of the memory that is free.
    """
    item_bytes = [s.extent * s.dtype.itemsize for s in (*call.inputs, *call.outputs)]
    free_bytes = _free_bytes(call)
    if sum(item_bytes) > _MEMORY_SHARE * free_bytes:
        raise RuntimeError(f"it needs {sum(item_bytes):,} bytes and {free_bytes:,} are free")


def _free_bytes(call: OpCall) -> int:
    if any(spec.device_type == "cuda" for spec in call.inputs):
        return torch.cuda.mem_get_info()[0]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 2**63
    available = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(available.split()[1]) * 1024 if available else 2**63


def _environment() -> tuple[str, ...]:
    """Return all that a measured cost depends on besides the operation."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no-gpu"
    return (
        f"v{_FORMAT}",
        f"torch-{torch.__version__}",
        f"{torch.get_num_threads()}-threads",
        f"{torch.get_float32_matmul_precision()}-precision",
        "deterministic" if torch.are_deterministic_algorithms_enabled() else "fastest",
        gpu,
        _cpu_model(),
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
