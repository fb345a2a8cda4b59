import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan.errors import ProfileError
from memplan.graph_capture import measured_profiler
from memplan.graph_capture.analytic_profiler import AnalyticProfiler
from memplan.graph_capture.devices import find_device
from memplan.graph_capture.measured_profiler import MeasuredProfiler
from memplan.graph_capture.op_call import OpCall, TensorSpec
from memplan.graph_capture.profile import OpCost
from tests.joint_graphs import JointGraph, attention_block, conv_net
from tests.small_specs import spec

ATEN = torch.ops.aten


def profiler(folder: Path, **options: Any) -> MeasuredProfiler:
    return MeasuredProfiler(device=find_device("cpu"), folder=folder, **options)


def relu(*shape: int) -> OpCall:
    return OpCall(ATEN.relu.default, (spec(*shape),), (), (spec(*shape),))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the keys of the calls that are really measured."""
    keys: list[str] = []
    measure = measured_profiler._cost_of

    def spy(call: OpCall) -> OpCost:
        keys.append(call.key)
        return measure(call)

    monkeypatch.setattr(measured_profiler, "_cost_of", spy)
    return keys


def test_every_node_of_small_joint_graphs_can_be_run_while_it_is_traced(tmp_path: Path) -> None:
    strict = profiler(tmp_path, strict=True)
    costs: list[list[OpCost]] = []

    def measure(calls: list[OpCall]) -> None:
        costs.append(strict.profile(calls))

    tokens = torch.randint(40, (2, 2, 8))
    inputs = (torch.randn(2, 3, 16, 16), torch.tensor([1, 2])), (tokens[0], tokens[1])
    for model, args in zip((conv_net(), attention_block()), inputs, strict=True):
        torch.manual_seed(0)
        expected = JointGraph(model).compiled(*args)
        torch.manual_seed(0)
        # The draws and the batch-norm buffers of the model are those of a run without a profile.
        joint = JointGraph(model, during=measure)
        assert torch.equal(joint.compiled(*args), expected)
    assert all(cost.time_ns > 0 for run in costs for cost in run)
    assert len(costs) == 2


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_bigger_work_takes_longer(tmp_path: Path) -> None:
    def product(n: int) -> OpCall:
        return OpCall(ATEN.mm.default, (spec(n, n), spec(n, n)), (), (spec(n, n),))

    small, large = profiler(tmp_path).profile([product(32), product(512)])
    assert large.time_ns > 10 * small.time_ns


def test_workspace_is_what_is_held_beyond_the_result(tmp_path: Path) -> None:
    # A median copies its input first; relu makes its result and nothing else.
    median = OpCall(ATEN.median.default, (spec(1000),), (), (spec(),))
    costs = profiler(tmp_path).profile([relu(1000), median])
    assert costs[0].workspace_bytes == 0
    assert 4000 <= costs[1].workspace_bytes < 4100


def test_in_place_and_view_ops_have_no_workspace(tmp_path: Path) -> None:
    copy = OpCall(ATEN.copy_.default, (spec(100), spec(100)), (), (spec(100),))
    view = OpCall(ATEN.t.default, (spec(3, 4),), (), (spec(4, 3),))
    costs = profiler(tmp_path).profile([copy, view])
    assert [cost.workspace_bytes for cost in costs] == [0, 0]


def test_equal_calls_are_measured_once_and_remembered(tmp_path: Path, runs: list[str]) -> None:
    calls = [relu(3), relu(4), relu(3)]
    first = profiler(tmp_path).profile(calls)
    assert runs == [relu(3).key, relu(4).key]
    assert first[0] == first[2]
    assert profiler(tmp_path).profile(calls) == first
    assert len(runs) == 2
    profiler(tmp_path, fresh=True).profile(calls)
    assert len(runs) == 4


def test_another_number_of_threads_is_another_environment(tmp_path: Path, runs: list[str]) -> None:
    threads = torch.get_num_threads()
    profiler(tmp_path).profile([relu(3)])
    try:
        torch.set_num_threads(threads + 1)
        profiler(tmp_path).profile([relu(3)])
    finally:
        torch.set_num_threads(threads)
    assert len(runs) == 2


def test_progress_ends_with_all_distinct_calls(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    profiler(tmp_path).profile([relu(3), relu(4), relu(3)], lambda *at: seen.append(at))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    seen.clear()
    profiler(tmp_path).profile([relu(3), relu(5)], lambda *at: seen.append(at))
    assert seen == [(1, 2), (2, 2)]


# A matrix of positive numbers is not a positive definite one.
CHOLESKY = OpCall(
    ATEN.linalg_cholesky_ex.default,
    (spec(8, 8),),
    (("check_errors", True),),
    (spec(8, 8), spec(dtype=torch.int32)),
)


def test_what_cannot_be_run_is_priced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        cost, _ = profiler(tmp_path).profile([CHOLESKY, relu(3)])
    assert cost.time_ns >= find_device("cpu").launch_ns
    assert "cannot run aten.linalg_cholesky_ex.default" in caplog.text
    assert next(tmp_path.iterdir()).read_text().count("\n") == 1, "an estimate was kept"


def test_strict_raises_where_an_op_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"cannot run aten\.linalg_cholesky_ex.* on its own: "):
        profiler(tmp_path, strict=True).profile([relu(3), CHOLESKY])


def test_an_op_larger_than_memory_is_not_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    huge = TensorSpec((2**45,), (1,), torch.float32)
    with caplog.at_level(logging.WARNING):
        profiler(tmp_path).profile([OpCall(ATEN.relu.default, (huge,), (), (huge,))])
    assert "are free" in caplog.text


def test_what_is_not_measured_in_time_is_priced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        costs = profiler(tmp_path, time_limit_s=-1.0).profile([relu(3), relu(4)])
    assert costs == [OpCost(find_device("cpu").launch_ns)] * 2
    assert "2 operations are priced by the model of cpu" in caplog.text


def test_an_active_torch_profiler_is_reported(tmp_path: Path) -> None:
    with (
        torch.autograd.profiler.profile(use_kineto=False),
        pytest.raises(ProfileError, match="torch profiler is active"),
    ):
        profiler(tmp_path).profile([relu(3)])


def test_global_random_state_stays(tmp_path: Path) -> None:
    call = OpCall(ATEN.bernoulli.p, (spec(100), 0.5), (), (spec(100),))
    before = torch.get_rng_state()
    profiler(tmp_path).profile([call])
    assert torch.equal(before, torch.get_rng_state())


def test_the_time_is_one_that_a_busy_machine_does_not_change() -> None:
    assert measured_profiler._typical([90, 11, 10, 500, 12, 80, 13, 300]) == 12
    assert measured_profiler._typical([30, 20, 90]) == 20


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_ops_are_timed_on_the_device(tmp_path: Path) -> None:
    x = TensorSpec((1024, 1024), (1024, 1), torch.float32, "cuda")
    cost = profiler(tmp_path).profile([OpCall(ATEN.mm.default, (x, x), (), (x,))])[0]
    assert 1_000 < cost.time_ns < 100_000_000


LOSSES = ("binary_cross_entropy", "l1_loss", "mse_loss", "smooth_l1_loss", "soft_margin_loss")


@pytest.mark.parametrize("name", [n for n in LOSSES if hasattr(ATEN, n)])
def test_what_a_loss_keeps_beyond_its_scalar_is_known(name: str, tmp_path: Path) -> None:
    loss, size = getattr(ATEN, name).default, (spec(64, 64), spec(64, 64))
    calls = [OpCall(loss, size, (), (spec(),)), OpCall(ATEN.relu.default, size[:1], (), size[:1])]
    measured = profiler(tmp_path, strict=True).profile(calls)
    modelled = AnalyticProfiler(find_device("cpu")).profile(calls)
    kept = torch.nn.functional.mse_loss(*torch.randn(2, 64, 64)).untyped_storage().nbytes() - 4
    assert kept == 64 * 64 * 4 - 4
    assert measured[0].retained_bytes == (0 if name == "l1_loss" else kept)
    for own, model in zip(measured, modelled, strict=True):
        assert own.retained_bytes == model.retained_bytes
