"""Real training steps: joint graphs captured with fake tensors, so that nothing is allocated."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from unittest import mock

from memplan.graph_capture.graph import Graph
from memplan.graph_capture.graph_files import read_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One training step of an example.

    Attributes:
        example: Name of a file in `examples`.
        named: Name of the sizes in that file, if not its `FULL`.
        sizes: Further sizes.
        blocks: Pattern of the module paths of the blocks that users wrap in a checkpoint.
        dtype: Of the parameters, by its name in torch.
        device: Whose speed the analytic profile assumes.
    """

    example: str
    blocks: str
    named: str = ""
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    dtype: str = "float32"
    device: str = "a100-80gb"


_GPT2 = r"transformer\.h\.\d+"
_RESNET = r"resnet\.encoder\.stages\.\d+\.layers\.\d+"

STEPS: Mapping[str, Step] = MappingProxyType(
    {
        "gpt2_12": Step(example="gpt2", blocks=_GPT2),
        "gpt2_24": Step(example="gpt2", blocks=_GPT2, sizes={"layers": 24}),
        "gpt2_48": Step(example="gpt2", blocks=_GPT2, sizes={"layers": 48}),
        "gpt2_96": Step(example="gpt2", blocks=_GPT2, sizes={"layers": 96}),
        "llama3_8b": Step(
            example="llama_8layer",
            named="LLAMA_3_8B",
            blocks=r"model\.layers\.\d+",
            dtype="bfloat16",
        ),
        "resnet152": Step(example="resnet50", named="RESNET_152", blocks=_RESNET),
        "unet_deep": Step(example="unet", named="LARGE", blocks=r"(?:down|up)\.\d+"),
        "t5_large": Step(
            example="t5_small", named="T5_LARGE", blocks=r"(?:encoder|decoder)\.block\.\d+"
        ),
        "vit_h14": Step(example="vit_b16", named="VIT_H14", blocks=r"vit\.\w*\.?layers?\.\d+"),
    }
)
"""By the name in the tables. Their optimizer is left out, see `activations_only`."""

EXAMPLES = (
    *("vgg16", "unet", "resnet50", "bert_base"),
    *("gpt2", "vit_b16", "t5_small", "llama_8layer"),
)


def step_graph(name: str, folder: Path | None) -> Graph:
    """Return the graph of a step of `STEPS`, from `folder` if it was put there before."""
    step = STEPS[name]
    path = None if folder is None else folder / f"{name}.json"
    if path is not None and path.exists():
        return read_graph(path)
    graph = captured(step)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(graph.to_json())
    return graph


def example_graph(name: str) -> Graph:
    """Return the whole step of an example, AdamW included, on the CPU."""
    return captured(Step(example=name, blocks="", device="cpu"), optimizer="adamw")


def captured(step: Step, optimizer: str | None = None) -> Graph:
    """Capture the joint graph with fake tensors and the analytic profile."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import memplan

    example = importlib.import_module(f"examples.{step.example}")
    sizes = (getattr(example, step.named) if step.named else {}) | dict(step.sizes)
    with FakeTensorMode(allow_non_fake_inputs=True), _initial_values_left_out():
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, step.dtype))
        try:
            model = example.model(**sizes)
        finally:
            torch.set_default_dtype(before)
        inputs = example.example_inputs(**sizes)
        args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
        return memplan.capture(
            model,
            args,
            kwargs,
            loss=example.loss,
            optimizer=optimizer,
            device=step.device,
            profile="analytic",
        )


@contextmanager
def _initial_values_left_out() -> Iterator[None]:
    """Let truncated normal draws do nothing: they look at values, which fake tensors lack."""
    from torch.nn import init

    with mock.patch.object(init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor):
        yield


def activations_only(graph: Graph) -> Graph:
    """Return the graph with no bytes for what a plan cannot free.

    Parameters, inputs and gradients stay whatever a plan does. Without them a budget is a share
    of what can be planned, as in Checkmate, Moccasin and FastSA.
    """
    tensors = tuple(replace(t, nbytes=0) if t.pinned else t for t in graph.tensors)
    return replace(graph, tensors=tensors)
