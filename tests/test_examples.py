"""Every example is a model file that captures as one graph and trains a step."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import memplan
from memplan.graph_capture.without_memory import without_memory

torch = pytest.importorskip("torch")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode

FOLDER = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
ELSEWHERE = [name for name in NAMES if "--device" in (FOLDER / f"{name}.py").read_text()]
HERE = [name for name in NAMES if name not in ELSEWHERE]


def load(name: str) -> ModuleType:
    """Import an example by its path, as the command line does."""
    if "transformers" in (FOLDER / f"{name}.py").read_text():
        pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example  # dynamo looks a function's globals up by module name
    spec.loader.exec_module(example)
    return example


def step_of(example: ModuleType, sizes: dict[str, int]) -> tuple[Any, Callable[[], Any]]:
    """Return the model, and a function that computes the loss of the example inputs."""
    model, inputs = example.model(**sizes), example.example_inputs(**sizes)
    targets = len(inspect.signature(example.loss).parameters) - 1
    if isinstance(inputs, dict):
        return model, lambda: example.loss(model(**inputs))
    split = len(inputs) - targets
    return model, lambda: example.loss(model(*inputs[:split]), *inputs[split:])


def test_there_are_examples() -> None:
    assert {"gpt2", "resnet50", "unet"} <= set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ELSEWHERE)
def test_captures_without_memory_for_its_device(name: str) -> None:
    torch._dynamo.reset()
    example = load(name)
    with without_memory(FakeTensorMode()):
        model, inputs = example.model(**example.SMALL), example.example_inputs(**example.SMALL)
    graph = memplan.capture(
        model, inputs, loss=example.loss, optimizer=example.optimizer, device="h100",
        profile="analytic",
    )  # fmt: skip
    assert graph.ops[-1].name == "optimizer_step"
    assert not any("_for_cpu" in op.target for op in graph.ops)


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_captures_as_one_graph_and_trains(name: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    example = load(name)
    model, step = step_of(example, example.SMALL)
    loss = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=False)()
    loss.backward()
    assert loss.ndim == 0
    assert torch.isfinite(loss)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_says_how_to_run_it(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert f"memplan compile examples/{name}.py --budget" in text
    # The U-Net is written out, where the others take their layers from a library.
    assert len(text.splitlines()) <= (175 if name == "sdxl_unet" else 70)
