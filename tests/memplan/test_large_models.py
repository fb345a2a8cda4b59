"""Llama 3 8B without its memory: every byte that has a closed formula."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from memplan import api
from memplan.graph_capture.graph import Graph, Kind
from memplan.graph_capture.optimizer_state import optimizer_bytes
from memplan.model_file import ModelFile, read_model_file

pytest.importorskip("transformers")
EXAMPLES = Path(__file__).parent.parent.parent / "examples"

WIDTH, INNER, LAYERS, WORDS, GROUPED = 4096, 14336, 32, 128256, 1024
LAYER = 2 * WIDTH * WIDTH + 2 * WIDTH * GROUPED + 3 * WIDTH * INNER + 2 * WIDTH
PARAMETERS = 2 * WORDS * WIDTH + LAYERS * LAYER + WIDTH
TENSORS = 2 + LAYERS * 9 + 1
BFLOAT16 = 2


@pytest.fixture(scope="module")
def llama() -> ModelFile:
    return read_model_file(EXAMPLES / "llama8b.py", offline=True)


@pytest.mark.parametrize("name", ["adamw", "adamw-fused"])
def test_parameters_and_optimizer_state_are_those_of_the_formulas(
    llama: ModelFile, name: str
) -> None:
    parameters = list(llama.model.parameters())
    assert sum(p.numel() for p in parameters) == PARAMETERS == 8_030_261_248
    footprint = optimizer_bytes(name, parameters, "cuda")
    # Two values a parameter, and a step count in float32 a tensor.
    assert footprint.state_bytes == 2 * BFLOAT16 * PARAMETERS + 4 * TENSORS
    # Without its fused kernel the update makes one more value a parameter.
    assert footprint.workspace_bytes == (0 if "fused" in name else BFLOAT16 * PARAMETERS)


@pytest.mark.slow
def test_every_gradient_is_in_the_captured_step(llama: ModelFile) -> None:
    few = llama.with_batch(1)
    graph: Graph = api.capture(
        few.model, few.args, loss=few.loss, optimizer="adamw-fused", device="h100",
        profile="analytic",
    )  # fmt: skip
    held: Counter[Kind] = Counter()
    for tensor in graph.tensors:
        held[tensor.kind] += tensor.nbytes
    # Whole multiples of the allocator's 512 bytes, every one of them.
    assert held[Kind.PARAM] == held[Kind.GRADIENT] == BFLOAT16 * PARAMETERS
    assert held[Kind.OPTIMIZER_STATE] - (4 * PARAMETERS + 4 * TENSORS) in range(512)
