from dataclasses import replace

import pytest
import torch

from memplan.graph_capture.analytic_profiler import AnalyticProfiler, flops_of, traffic_bytes
from memplan.graph_capture.device import Device
from memplan.graph_capture.devices import device_names, find_device
from memplan.graph_capture.op_call import OpCall
from memplan.graph_capture.profile import OpCost
from tests.joint_graphs import JointGraph, attention_block, conv_net
from tests.small_specs import spec

ATEN = torch.ops.aten
# 1 FLOP and 1 byte a nanosecond: costs can be read off.
UNIT = Device(
    name="unit",
    torch_type="cuda",
    memory_bytes=2**30,
    flops_per_s=(("float32", 10**9), ("bfloat16", 4 * 10**9)),
    bandwidth_bytes_per_s=10**9,
    launch_ns=50,
)


# Stride, padding, dilation, transposed, output padding, groups.
CONV_SETTINGS = ((1, 1), (0, 0), (1, 1), False, (0, 0), 1)


def conv_backward(*wanted: bool) -> OpCall:
    x, weight, grad = spec(2, 3, 10, 10), spec(8, 3, 3, 3), spec(2, 8, 8, 8)
    args = (grad, x, weight, (8,), *CONV_SETTINGS, wanted)
    return OpCall(ATEN.convolution_backward.default, args)


# One convolution: 2 x 64 outputs of 8 channels, each a sum over 3 x 9 products.
CONVOLUTION = 2 * (2 * 64 * 8) * (3 * 9)


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (OpCall(ATEN.mm.default, (spec(3, 4), spec(4, 5)), (), (spec(3, 5),)), 2 * 3 * 4 * 5),
        (
            OpCall(ATEN.addmm.default, (spec(5), spec(3, 4), spec(4, 5)), (), (spec(3, 5),)),
            2 * 3 * 4 * 5,
        ),
        (
            OpCall(ATEN.bmm.default, (spec(7, 3, 4), spec(7, 4, 5)), (), (spec(7, 3, 5),)),
            7 * 2 * 3 * 4 * 5,
        ),
        # Six rows among three groups; the gradient of the groups' weights; all groups apart.
        (OpCall(ATEN._grouped_mm.default, (spec(6, 4), spec(3, 4, 5)), (), (spec(6, 5),)), 240),
        (OpCall(ATEN._grouped_mm.default, (spec(4, 6), spec(6, 5)), (), (spec(3, 4, 5),)), 240),
        (
            OpCall(ATEN._grouped_mm.default, (spec(3, 2, 4), spec(3, 4, 5)), (), (spec(3, 2, 5),)),
            240,
        ),
        (conv_backward(True, True, True), 2 * CONVOLUTION),
        (conv_backward(False, True, True), CONVOLUTION),
        (
            OpCall(
                ATEN.convolution.default,
                (spec(2, 3, 10, 10), spec(8, 3, 3, 3), None, *CONV_SETTINGS),
                (),
                (spec(2, 8, 8, 8),),
            ),
            CONVOLUTION,
        ),
        (
            # Query times key and weights times value: 2 products of 16 x 16 x 8 for 6 heads.
            OpCall(
                ATEN._scaled_dot_product_flash_attention_for_cpu.default,
                (spec(2, 3, 16, 8),) * 3,
                (),
                (spec(2, 3, 16, 8), spec(2, 3, 16)),
            ),
            2 * 6 * 2 * 16 * 16 * 8,
        ),
        (OpCall(ATEN.mv.default, (spec(3, 4), spec(4)), (), (spec(3),)), 2 * 12),
        (OpCall(ATEN.relu.default, (spec(3, 4),), (), (spec(3, 4),)), None),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_flops_are_those_counted_by_hand(call: OpCall, flops: int | None) -> None:
    assert flops_of(call) == flops


@pytest.mark.parametrize(
    ("call", "nbytes"),
    [
        (OpCall(ATEN.add.Tensor, (spec(10), spec(10)), (), (spec(10),)), 120),
        # Ten rows of four floats, read and written, and ten indices of 8 bytes.
        (
            OpCall(
                ATEN.embedding.default,
                (spec(1000, 4), spec(10, dtype=torch.int64)),
                (),
                (spec(10, 4),),
            ),
            2 * 160 + 80,
        ),
        (OpCall(ATEN.copy_.default, (spec(10), spec(10)), (), (spec(10),)), 80),
        (OpCall(ATEN.t.default, (spec(10, 10),), (), (spec(10, 10),)), 0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_traffic_is_that_counted_by_hand(call: OpCall, nbytes: int) -> None:
    assert traffic_bytes(call) == nbytes


def price(call: OpCall) -> OpCost:
    return AnalyticProfiler(UNIT).profile([call])[0]


def test_a_large_product_is_bound_by_arithmetic() -> None:
    call = OpCall(ATEN.mm.default, (spec(100, 100), spec(100, 100)), (), (spec(100, 100),))
    assert price(call) == OpCost(round(2_000_000 / 0.6))


def test_half_precision_runs_at_its_own_rate() -> None:
    half = spec(100, 100, dtype=torch.bfloat16)
    call = OpCall(ATEN.mm.default, (half, half), (), (half,))
    assert price(call) == OpCost(round(2_000_000 / 4 / 0.6))


def test_a_sum_is_bound_by_traffic() -> None:
    call = OpCall(ATEN.add.Tensor, (spec(1000), spec(1000)), (), (spec(1000),))
    assert price(call) == OpCost(12_000 * 4 // 3)


def test_nothing_is_faster_than_a_launch() -> None:
    assert price(OpCall(ATEN.relu.default, (spec(2),), (), (spec(2),))) == OpCost(50)


def test_arithmetic_of_an_exponential_counts_and_a_word_is_matched_whole() -> None:
    x = spec(1000)
    exp, relu = (OpCall(op, (x,), (), (x,)) for op in (ATEN.exp.default, ATEN.relu.default))
    assert price(exp) == OpCost(1000 * 30 * 2)
    assert price(relu) == OpCost(round(8000 / 0.75))


def test_a_wrapped_op_costs_what_the_op_costs() -> None:
    inner = (ATEN.mm.default, spec(100, 100), spec(100, 100))
    wrapped = OpCall(torch._prims.rng_prims.run_and_save_rng_state, inner, (), (spec(100, 100),))
    assert price(wrapped) == OpCost(round(2_000_000 / 0.6))


def test_costs_keep_the_order_of_calls_and_progress_counts_distinct_ones() -> None:
    big = OpCall(ATEN.relu.default, (spec(1000),), (), (spec(1000),))
    small = OpCall(ATEN.relu.default, (spec(1),), (), (spec(1),))
    seen: list[tuple[int, int]] = []
    costs = AnalyticProfiler(UNIT).profile([small, big, small], lambda *at: seen.append(at))
    assert costs[0] == costs[2]
    assert costs[1].time_ns > costs[0].time_ns
    assert seen == [(1, 2), (2, 2)]


CPU = replace(UNIT, torch_type="cpu")


FAST_CPU = replace(CPU, flops_per_s=(("float32", 10**12),))


def price_on_cpu(call: OpCall, device: Device = CPU) -> int:
    return AnalyticProfiler(device).profile([call])[0].time_ns


def test_a_device_may_bring_its_own_efficiency() -> None:
    call = OpCall(ATEN.mm.default, (spec(100, 100), spec(100, 100)), (), (spec(100, 100),))
    device = replace(UNIT, efficiency=(("matmul", 1.0),))
    assert AnalyticProfiler(device).profile([call])[0] == OpCost(2_000_000)


def test_on_a_cpu_the_cache_helps_small_sums_and_fresh_pages_cost_large_ones() -> None:
    small, middle, large = (spec(2**n) for n in (16, 22, 24))
    add = ATEN.add.Tensor
    calls = [OpCall(add, (x, x), (), (x,)) for x in (small, middle, large)]
    times_ns = [price_on_cpu(call, FAST_CPU) for call in calls]
    # 12 bytes an element move, in cache four times as fast; 64 MiB are fresh from the kernel.
    assert times_ns == [12 * 2**16 // 4, 12 * 2**22, 12 * 2**24 + 2 * 2**24]


def test_on_a_cpu_three_channels_idle_most_of_a_block() -> None:
    def convolution(channels: int) -> int:
        x, weight, y = spec(2, channels, 10, 10), spec(8, channels, 3, 3), spec(2, 8, 8, 8)
        args = (x, weight, None, *CONV_SETTINGS)
        return price_on_cpu(OpCall(ATEN.convolution.default, args, (), (y,)))

    assert convolution(4) == convolution(8) == convolution(16)
    assert convolution(32) == pytest.approx(2 * convolution(16), abs=1)


def test_on_a_cpu_windows_of_a_pooling_are_compared_one_by_one() -> None:
    x, y, indices = spec(1, 2, 8, 8), spec(1, 2, 4, 4), spec(1, 2, 4, 4, dtype=torch.int64)
    pool = OpCall(ATEN.max_pool2d_with_indices.default, (x, (2, 2), (2, 2)), (), (y, indices))
    assert price_on_cpu(pool) == 4 * 2 * 16 * 4


@pytest.fixture(scope="module")
def joint_calls() -> list[OpCall]:
    tokens = torch.randint(40, (2, 2, 8))
    conv, attention = JointGraph(conv_net()), JointGraph(attention_block())
    conv.compiled(torch.randn(2, 3, 16, 16), torch.tensor([1, 2]))
    attention.compiled(tokens[0], tokens[1])
    return [*conv.calls(), *attention.calls()]


@pytest.mark.parametrize("name", device_names())
def test_every_node_of_small_joint_graphs_has_a_price(
    name: str, joint_calls: list[OpCall]
) -> None:
    device = find_device(name)
    costs = AnalyticProfiler(device).profile(joint_calls)
    assert len(costs) > 100
    assert all(cost.time_ns >= device.launch_ns for cost in costs)
