import torch
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from memplan.graph_capture.plain_execution import plain_execution


def test_tensors_are_real_inside_a_fake_mode() -> None:
    with FakeTensorMode():
        with plain_execution():
            real = torch.ones(3) + 1
        fake = torch.ones(3)
    assert not isinstance(real, FakeTensor)
    assert real.tolist() == [2, 2, 2]
    assert isinstance(fake, FakeTensor)


def test_autocast_and_the_default_device_are_off() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), plain_execution():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert (product.dtype, product.device.type) == (torch.float32, "cpu")


def test_random_draws_leave_the_generator_as_it_was() -> None:
    torch.manual_seed(3)
    with plain_execution():
        torch.rand(5)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(2))


def test_what_stands_in_for_operators_is_not_called() -> None:
    operator = torch.ops.aten.sin.default
    key = DispatchKey.CPU
    operator.py_kernels[key] = lambda x: x + 1
    operator._dispatch_cache.clear()
    try:
        with enable_python_dispatcher():
            traced = torch.sin(torch.zeros(1))
            with plain_execution():
                real = torch.sin(torch.zeros(1))
    finally:
        del operator.py_kernels[key]
        operator._dispatch_cache.clear()
    assert (traced.item(), real.item()) == (1, 0)
