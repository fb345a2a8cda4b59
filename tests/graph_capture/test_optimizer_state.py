from functools import partial
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from memplan.errors import UsageError
from memplan.graph_capture.allocations import record_allocations
from memplan.graph_capture.optimizer_state import (
    OptimizerFootprint,
    optimizer_bytes,
    optimizer_names,
)

SHAPES = ((64, 50), (64, 50), (100, 30))
BYTES = 4 * (2 * 64 * 50 + 100 * 30)
LARGEST = 4 * 64 * 50
STEPS = 3 * 4


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]


@pytest.mark.parametrize(
    ("name", "state_bytes"),
    [
        ("sgd", 0),
        ("sgd-momentum", BYTES),
        ("adam", 2 * BYTES + STEPS),
        ("AdamW", 2 * BYTES + STEPS),
        ("adagrad", BYTES + STEPS),
        ("rmsprop", BYTES + STEPS),
        # A mean for each row and each column, and the step.
        ("adafactor", 4 * (2 * (64 + 50) + 100 + 30) + STEPS),
        ("muon", BYTES),
    ],
)
def test_state_is_that_counted_by_hand(name: str, state_bytes: int) -> None:
    assert optimizer_bytes(name, parameters()).state_bytes == state_bytes


def test_adam_holds_three_temporaries_of_the_largest_parameter() -> None:
    # The root, its quotient, and the root that the parameter before left behind.
    assert optimizer_bytes("adam", parameters()).workspace_bytes == 3 * LARGEST


@pytest.mark.parametrize("name", optimizer_names())
def test_both_figures_are_those_of_a_real_step(name: str) -> None:
    own: dict[str, dict[str, Any]] = {"momentum": {"momentum": 0.9}, "fused": {"fused": True}}
    plain, _, more = name.partition("-")
    options = own.get(more, {})
    classes: dict[str, Any] = {key.lower(): value for key, value in vars(torch.optim).items()}
    real = parameters()
    optimizer = classes[plain](real, **options)
    for parameter in real:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    _, allocations = record_allocations(optimizer.step)
    state = [t for each in optimizer.state.values() for t in each.values()]
    predicted = optimizer_bytes(name, parameters())
    assert predicted.state_bytes == sum(t.nbytes for t in state if isinstance(t, torch.Tensor))
    # Python numbers become tensors of 4 or 8 bytes for a moment inside of real kernels.
    most_bytes = 32 + (_product_workspace_bytes() if name == "muon" else 0)
    assert 0 <= allocations.peak_bytes - predicted.workspace_bytes <= most_bytes


def _product_workspace_bytes() -> int:
    """Return what the kernel behind Muon's products takes for itself: on some CPUs nothing."""
    wide = torch.zeros(64, 50, dtype=torch.bfloat16).T
    square = torch.zeros(50, 50, dtype=torch.bfloat16)
    most_bytes = 0
    for left, right in ((wide, wide.T), (square, square), (square, wide)):
        product, allocations = record_allocations(partial(torch.matmul, left, right))
        most_bytes = max(most_bytes, allocations.peak_bytes - product.nbytes)
    return most_bytes


def test_frozen_parameters_have_no_state() -> None:
    model = parameters()
    model[0].requires_grad_(False)
    assert optimizer_bytes("sgd-momentum", model).state_bytes == BYTES - LARGEST
    for parameter in model:
        parameter.requires_grad_(False)
    assert optimizer_bytes("adam", model) == OptimizerFootprint(0, 0)


def test_state_has_the_dtype_of_its_parameter() -> None:
    assert optimizer_bytes("sgd-momentum", parameters(torch.bfloat16)).state_bytes == BYTES // 2


def test_a_function_chooses_its_own_options() -> None:
    def amsgrad(chosen: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(chosen, amsgrad=True)

    assert optimizer_bytes(amsgrad, parameters()).state_bytes == 3 * BYTES + STEPS


def test_an_optimizer_is_accounted_by_its_groups_and_left_as_it_is() -> None:
    first, second, third = parameters()
    groups: list[dict[str, Any]] = [
        {"params": [first]},
        {"params": [second, third], "amsgrad": True},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    expected = 2 * BYTES + (BYTES - LARGEST) + STEPS
    assert optimizer_bytes(optimizer, []).state_bytes == expected
    assert (len(optimizer.state), calls) == (0, [])
    assert optimizer.param_groups[1]["params"][0] is second


def test_a_fused_optimizer_updates_in_place() -> None:
    footprint = optimizer_bytes(lambda p: torch.optim.AdamW(p, fused=True), parameters())
    assert footprint.state_bytes == 2 * BYTES + STEPS
    assert footprint.workspace_bytes == 0


def test_cuda_updates_all_parameters_at_once() -> None:
    on_cuda = optimizer_bytes("adam", parameters(), torch_type="cuda")
    assert on_cuda.workspace_bytes == BYTES


def test_fake_parameters_of_a_large_model_take_no_memory() -> None:
    with FakeTensorMode():
        model = [torch.nn.Parameter(torch.empty(2**20, 2**16))]
        footprint = optimizer_bytes("adafactor", model)
    assert footprint.state_bytes == 4 * (2**20 + 2**16) + 4
    assert footprint.workspace_bytes >= 2**38


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        ("adamv", r"'adamv'; choose one of adadelta, adafactor, adagrad, .*sgd-momentum"),
        ("lbfgs", "several times a step"),
        ("SparseAdam", "sparse gradients"),
        (lambda p: torch.optim.LBFGS(p), "several times a step"),
        (lambda p: torch.optim.SGD(p, lr=-1.0), "Invalid learning rate"),
        (lambda p: None, "returned None"),
    ],
)
def test_what_cannot_be_accounted_for_is_refused(optimizer: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        optimizer_bytes(optimizer, parameters())


def test_muon_says_why_it_refuses_a_vector() -> None:
    with pytest.raises(UsageError, match="2D"):
        optimizer_bytes("muon", [torch.nn.Parameter(torch.zeros(3))])
