"""What an optimizer adds to the memory of a step: its state, and what its update takes.

Nothing is looked up in a table: two steps are run and what is there is counted. They run on the
meta device, where tensors have sizes and no memory, so that the optimizer of a model of any size
is priced on any machine. torch's fused kernels do not run there: they update everything in place,
so their state is counted with the plain kernels and their update takes nothing. Optimizers from
elsewhere with kernels of their own are run for real instead, with the parameters of one shape and
dtype at a time.
"""

from __future__ import annotations

import copy
import inspect
import logging
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from memplan.errors import UsageError
from memplan.graph_capture.allocations import record_allocations
from memplan.graph_capture.plain_execution import plain_execution

_LOG = logging.getLogger(__name__)

MakeOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

_REFUSED = {
    "lbfgs": "it runs the model several times a step and keeps a history, so no step is its peak",
    "sparseadam": "it needs sparse gradients, whose size depends on the data",
}


@dataclass(frozen=True, slots=True)
class OptimizerFootprint:
    """What an optimizer takes besides parameters and gradients.

    Attributes:
        state_bytes: What it keeps from step to step; there from the second step on.
        workspace_bytes: The most that one update holds beyond that.
    """

    state_bytes: int
    workspace_bytes: int


def optimizer_names() -> tuple[str, ...]:
    """Return the names that `optimizer_bytes` accepts, by alphabet."""
    return tuple(sorted(_makers()))


def optimizer_bytes(
    optimizer: str | MakeOptimizer | torch.optim.Optimizer,
    parameters: Sequence[torch.Tensor],
    torch_type: str = "cpu",
) -> OptimizerFootprint:
    """Return what an optimizer of these parameters takes.

    Args:
        optimizer: The lower-case name of a class in `torch.optim`, with its defaults
            (`sgd-momentum` is SGD with momentum 0.9, `adamw-fused` AdamW with its fused kernel); a
            function from parameters to an optimizer;
            or an optimizer, which is left as it is, and whose own parameters count.
        parameters: The model's parameters, real or fake; frozen ones have no state.
        torch_type: Where the step will run. On `cuda` torch updates all parameters at once
            (`foreach`), which takes more workspace.

    Raises:
        UsageError: The name is not known, or such an optimizer cannot be accounted for or does not
            take these parameters.
    """
    if isinstance(optimizer, torch.optim.Optimizer):
        _refuse(type(optimizer).__name__)
        groups = [_shapes(group["params"]) for group in optimizer.param_groups]
        make = _copier(optimizer)
    else:
        groups = [_shapes(parameters)]
        make = _builder(
            optimizer_named(optimizer, torch_type) if isinstance(optimizer, str) else optimizer
        )
    if not any(groups):
        return OptimizerFootprint(0, 0)
    with plain_execution(), torch.enable_grad():
        return _run(make, groups)


@dataclass(frozen=True, slots=True)
class _Shape:
    shape: tuple[int, ...]
    dtype: torch.dtype


_Groups = list[list[_Shape]]
_MakeForGroups = Callable[[list[list[torch.nn.Parameter]]], torch.optim.Optimizer]


def _shapes(parameters: Sequence[torch.Tensor]) -> list[_Shape]:
    return [_Shape(tuple(p.shape), p.dtype) for p in parameters if p.requires_grad]


def _makers() -> dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]]:
    """Return class and options by name."""
    made: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {}
    base = torch.optim.Optimizer
    for name, found in sorted(vars(torch.optim).items()):
        is_optimizer = isinstance(found, type) and issubclass(found, base) and found is not base
        if is_optimizer and name.lower() not in _REFUSED:
            made[name.lower()] = (found, {})
            if "fused" in inspect.signature(found).parameters:
                made[f"{name.lower()}-fused"] = (found, {"fused": True})
    made["sgd-momentum"] = (torch.optim.SGD, {"momentum": 0.9})
    return made


def optimizer_named(name: str, torch_type: str = "cpu") -> MakeOptimizer:
    """Return what makes the optimizer called `name` with its defaults.

    Raises:
        UsageError: The name is not known, or such an optimizer cannot be accounted for.
    """
    _refuse(name)
    makers = _makers()
    if name.strip().lower() not in makers:
        known = ", ".join(sorted(makers))
        raise UsageError(f"no optimizer is called {name!r}; choose one of {known}")
    build, options = makers[name.strip().lower()]
    is_choice = "fused" not in options and "foreach" in inspect.signature(build).parameters
    if torch_type == "cuda" and is_choice:
        options = {**options, "foreach": True}
    return partial(build, **options)


def _builder(build: MakeOptimizer) -> _MakeForGroups:
    def make(groups: list[list[torch.nn.Parameter]]) -> torch.optim.Optimizer:
        try:
            optimizer = build([p for group in groups for p in group])
        except ValueError as error:
            raise UsageError(f"the optimizer refuses the parameters: {error}") from error
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"the optimizer function returned {optimizer!r}, no optimizer")
        _refuse(type(optimizer).__name__)
        return optimizer

    return make


def _copier(optimizer: torch.optim.Optimizer) -> _MakeForGroups:
    def make(groups: list[list[torch.nn.Parameter]]) -> torch.optim.Optimizer:
        # A shallow copy leaves out hooks; what it shares with the original is replaced here.
        twin = copy.copy(optimizer)
        twin.state = defaultdict(dict)
        twin.param_groups = [
            {**old, "params": new} for old, new in zip(optimizer.param_groups, groups, strict=True)
        ]
        return twin

    return make


def _refuse(name: str) -> None:
    if reason := _REFUSED.get(name.strip().lower()):
        raise UsageError(f"{name} cannot be accounted for: {reason}; choose another optimizer")


def _run(make: _MakeForGroups, groups: _Groups) -> OptimizerFootprint:
    try:
        return _on_meta(make, groups)
    except RuntimeError as error:
        _LOG.debug("the optimizer does not know the meta device, so it runs for real: %s", error)
    try:
        return _for_real(make, groups)
    except RuntimeError as error:
        raise UsageError(f"two steps of the optimizer cannot be run: {error}") from error


def _on_meta(make: _MakeForGroups, groups: _Groups) -> OptimizerFootprint:
    optimizer = make([[_parameter(shape, "meta") for shape in group] for group in groups])
    is_fused = _unfuse(optimizer)
    with _StorageMeter():
        optimizer.step()
    with _StorageMeter() as meter:
        optimizer.step()
    return OptimizerFootprint(_state_bytes(optimizer), 0 if is_fused else meter.peak_bytes)


def _unfuse(optimizer: torch.optim.Optimizer) -> bool:
    """Choose plain kernels where torch's fused ones are asked for, and say whether they were."""
    if not type(optimizer).__module__.startswith("torch.optim."):
        return False
    fused = [group for group in optimizer.param_groups if group.get("fused")]
    if len(fused) < len(optimizer.param_groups):
        return False
    for group in fused:
        group.update(fused=False, foreach=False)
    return True


def _for_real(make: _MakeForGroups, groups: _Groups) -> OptimizerFootprint:
    """Run the parameters of each kind apart from the others.

    Two of a kind, if there are two: a loop over parameters often still holds what it made for one
    while it makes the same for the next.
    """
    state_bytes = workspace_bytes = 0
    for i, group in enumerate(groups):
        for shape, count in Counter(group).items():
            run = min(count, 2)
            kind = [_parameter(shape, "cpu") for _ in range(run)]
            optimizer = make([kind if j == i else [] for j in range(len(groups))])
            optimizer.step()
            _, allocations = record_allocations(optimizer.step)
            state_bytes += count * _state_bytes(optimizer) // run
            workspace_bytes = max(workspace_bytes, allocations.peak_bytes)
    return OptimizerFootprint(state_bytes, workspace_bytes)


def _parameter(shape: _Shape, device: str) -> torch.nn.Parameter:
    data = torch.zeros(shape.shape, dtype=shape.dtype, device=device)
    parameter = torch.nn.Parameter(data)
    parameter.grad = torch.zeros_like(data)
    return parameter


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    storages = {
        tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes()
        for state in optimizer.state.values()
        for tensor in _tensors(state)
    }
    return sum(storages.values())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, Mapping):
        value = list(value.values())
    for leaf in _pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            yield leaf


class _StorageMeter(TorchDispatchMode):
    """Counts the storages that operations make, while they live.

    Where the code reads a number from a tensor it gets a 1: sizes do not depend on it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._live_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return torch.ones((), dtype=args[0].dtype).item()
        given = {t.untyped_storage()._cdata for t in _tensors((args, kwargs or {}))}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self._count(tensor.untyped_storage(), given)
        return result

    def _count(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        key, nbytes = storage._cdata, storage.nbytes()
        if key in given or key in self._known:
            return
        self._known.add(key)
        self._live_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)
        weakref.finalize(storage, self._forget, key, nbytes)

    def _forget(self, key: int, nbytes: int) -> None:
        self._known.discard(key)
        self._live_bytes -= nbytes
