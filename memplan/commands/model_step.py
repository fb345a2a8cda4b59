"""Reads a model file and captures its training step, for the commands that only plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan.errors import UsageError

if TYPE_CHECKING:
    from memplan.graph_capture.graph import Graph
    from memplan.model_file import ModelFile
    from memplan.progress import Stages


def is_here(device: str | None) -> bool:
    """Whether operations of the device can be measured on this machine."""
    import torch

    from memplan.graph_capture.devices import find_device

    found = find_device(device or "cpu")
    return found.torch_type == "cpu" or torch.cuda.is_available()


def profile_for(profile: str | None, device: str | None, *, offline: bool) -> str:
    """Return the kind of profile: measured where the device is here and the tensors are real."""
    if profile is not None:
        return profile
    return "measured" if not offline and is_here(device) else "analytic"


def read_file(file: Path, *, offline: bool = False) -> ModelFile:
    """Read a model file.

    Raises:
        UsageError: As `read_model_file`.
    """
    from memplan.model_file import read_model_file

    return read_model_file(file, offline=offline)


def capture_step(
    model_file: ModelFile,
    *,
    optimizer: str | None,
    device: str | None,
    profile: str | None,
    stages: Stages,
) -> Graph:
    """Capture and price the step of a model file.

    Raises:
        CaptureError: The model cannot be captured as one graph.
    """
    from memplan import api

    settings: dict[str, Any] = {
        "loss": model_file.loss,
        "optimizer": optimizer or model_file.optimizer,
        "device": device,
        "profile": profile_for(profile, device, offline=model_file.mode is not None),
    }
    return api.capture(
        model_file.model, model_file.args, model_file.kwargs, progress=stages, **settings
    )


def budget_of_device(budget: str | None, device: str | None) -> str | int:
    """Return the budget, or where none is given what the device has for tensors.

    Raises:
        UsageError: Neither budget nor device is given, or the budget is more than the device has.
    """
    from memplan.graph_capture.devices import find_device
    from memplan.units import format_bytes, parse_budget

    if device is None:
        if budget is None:
            raise UsageError("give a --budget such as 8GB, or a --device such as a100-40gb")
        return budget
    found = find_device(device)
    room_bytes = found.memory_bytes - found.overhead_bytes
    if budget is None:
        return room_bytes
    is_size = budget.strip().lower() != "min" and "%" not in budget
    if is_size and parse_budget(budget, 0, 0) > found.memory_bytes:
        raise UsageError(
            f"the budget {budget} is more than {found.name} has: "
            f"{format_bytes(found.memory_bytes)}, of which the framework takes about "
            f"{format_bytes(found.overhead_bytes)}"
        )
    return budget
