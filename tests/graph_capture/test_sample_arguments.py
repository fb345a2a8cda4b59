from typing import Any

import pytest
import torch

from memplan.errors import ProfileError
from memplan.graph_capture.op_call import OpCall, TensorSpec
from memplan.graph_capture.sample_arguments import sample_arguments
from tests.small_specs import ints, spec

ATEN = torch.ops.aten


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(3, 4),
        torch.empty(3, 4).t(),
        torch.empty(2, 3, 8, 8).to(memory_format=torch.channels_last),
        torch.empty(5, 1).expand(5, 7),
        torch.empty(10)[::3],
        torch.empty(()),
        torch.empty(0, 4),
        torch.empty(3, dtype=torch.bfloat16),
        torch.empty(3, 2, dtype=torch.complex64),
        torch.empty(3, dtype=torch.bool),
        torch.empty(3, dtype=torch.uint8),
    ],
    ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}{tensor.stride()}",
)
def test_a_sample_looks_like_its_spec(tensor: torch.Tensor) -> None:
    wanted = TensorSpec.of(tensor)
    (sample,), _ = sample_arguments(OpCall(ATEN.neg.default, (wanted,)))
    assert TensorSpec.of(sample) == wanted
    assert sample.untyped_storage().nbytes() == wanted.extent * tensor.dtype.itemsize


def test_floats_are_positive_and_below_one_even_where_a_block_is_repeated() -> None:
    (x,), _ = sample_arguments(OpCall(ATEN.log.default, (spec((1 << 21) + 5),)))
    assert 0.1 <= float(x.min()) < 0.11
    assert 0.89 < float(x.max()) <= 0.9


def test_the_same_call_gets_the_same_values_and_no_global_draw() -> None:
    state = torch.get_rng_state()
    call = OpCall(ATEN.embedding.default, (spec(50, 4), ints(20)))
    (first, i), (second, j) = sample_arguments(call)[0], sample_arguments(call)[0]
    assert torch.equal(first, second)
    assert torch.equal(i, j)
    assert torch.equal(state, torch.get_rng_state())


# Kernel, stride, padding, dilation, ceil mode.
POOL_SETTINGS = ((2, 2), (2, 2), (0, 0), (1, 1), False)

INDEXED: list[tuple[OpCall, int, int]] = [
    (OpCall(ATEN.embedding.default, (spec(50, 4), ints(200))), 1, 50),
    (
        OpCall(ATEN.embedding_dense_backward.default, (spec(200, 4), ints(200), 50, -1, False)),
        1,
        50,
    ),
    (OpCall(ATEN.gather.default, (spec(9, 30), 1, ints(9, 30))), 2, 30),
    (OpCall(ATEN.gather.default, (spec(9, 30), -2, ints(9, 30))), 2, 9),
    (OpCall(ATEN.scatter.value, (spec(9, 30), 1, ints(9, 30), 1.0)), 2, 30),
    (OpCall(ATEN.index_select.default, (spec(40, 3), 0, ints(200))), 2, 40),
    (OpCall(ATEN.nll_loss_forward.default, (spec(200, 7), ints(200), None, 1, -100)), 1, 7),
    (
        OpCall(
            ATEN.nll_loss_backward.default,
            (spec(), spec(200, 7), ints(200), None, 1, -100, spec()),
        ),
        2,
        7,
    ),
    (
        OpCall(
            ATEN.max_pool2d_with_indices_backward.default,
            (spec(2, 3, 8, 8), spec(2, 3, 16, 16), *POOL_SETTINGS, ints(2, 3, 8, 8)),
        ),
        7,
        256,
    ),
]


@pytest.mark.parametrize(
    ("call", "position", "bound"), INDEXED, ids=lambda v: getattr(v, "name", "")
)
def test_indices_are_spread_over_their_range(call: OpCall, position: int, bound: int) -> None:
    args, kwargs = sample_arguments(call)
    indices = args[position]
    assert int(indices.min()) >= 0
    assert bound * 0.6 <= int(indices.max()) < bound
    call.target(*args, **kwargs)


@pytest.mark.parametrize(
    "call",
    [
        OpCall(ATEN.index.Tensor, (spec(5, 60, 3), (None, ints(9), None))),
        OpCall(ATEN.index.Tensor, (spec(60, 2), (ints(9), ints(9)))),
        OpCall(ATEN.index_put.default, (spec(60, 2), (ints(9),), spec(9, 2), True)),
        OpCall(ATEN.floor_divide.default, (ints(4), ints(4))),
        OpCall(ATEN.cat.default, ((spec(2, 3), spec(2, 4)), 1)),
        OpCall(ATEN.bernoulli.p, (spec(9), 0.5)),
        OpCall(ATEN.copy_.default, (spec(9), spec(9))),
        OpCall(ATEN.multinomial.default, (spec(3, 9), 2)),
        OpCall(ATEN.full.default, ((3, 2), 1.0), (("dtype", torch.float32),)),
        OpCall(ATEN._assert_async.default, (spec(dtype=torch.bool),)),
    ],
    ids=lambda call: call.name,
)
def test_other_ops_accept_their_samples(call: OpCall) -> None:
    args, kwargs = sample_arguments(call)
    result: Any = call.target(*args, **kwargs)
    if isinstance(result, torch.Tensor) and result.dtype.is_floating_point:
        assert bool(result.isfinite().all())


def test_an_op_that_reads_a_private_buffer_is_never_run() -> None:
    call = OpCall(ATEN._cudnn_rnn_backward.default, (spec(5, 2, 16),))
    with pytest.raises(ProfileError, match=r"_cudnn_rnn_backward\.default reads a buffer"):
        sample_arguments(call)


def half(*shape: int) -> TensorSpec:
    return spec(*shape, dtype=torch.bfloat16)


@pytest.mark.parametrize("weight", [half(4), spec(4), None], ids=str)
def test_norms_of_half_precision_get_statistics_that_they_accept(
    weight: TensorSpec | None,
) -> None:
    mask = (True, weight is not None, weight is not None)
    x, statistics = half(6, 4), half(6, 1)
    layer = (x, x, (4,), statistics, statistics, weight, weight, mask)
    x, statistics = half(2, 4, 9), half(2, 2)
    group = (x, x, statistics, statistics, weight, 2, 4, 9, 2, mask)
    for call in (
        OpCall(ATEN.native_layer_norm_backward.default, layer),
        OpCall(ATEN.native_group_norm_backward.default, group),
    ):
        args, kwargs = sample_arguments(call)
        call.target(*args, **kwargs)


def test_a_saved_generator_state_is_a_valid_one() -> None:
    save, run = (
        torch._prims.rng_prims.run_and_save_rng_state,
        torch._prims.rng_prims.run_with_rng_state,
    )
    state = TensorSpec.of(torch.get_rng_state())
    inner = (ATEN.native_dropout.default, spec(64), 0.5, True)
    for call in (OpCall(save, inner), OpCall(run, (state, *inner))):
        args, _ = sample_arguments(call)
        assert args[-3].shape == (64,)
        call.target(*args)
