"""What models do: mutation, aliasing, randomness, autograd of their own, call forms, layouts."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from memplan.errors import CaptureError
from tests.steps import assert_like_plain, planned


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Body(nn.Module):
    """Layers, a buffer and a forward pass that a test gives."""

    def __init__(self, run: Callable[..., Any], *more: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.more = nn.ModuleList(more)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.run = run

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)


def update_in_place(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.net(x)
    before = h * m.mean.tanh()
    m.mean.lerp_(h.detach().mean(0), 0.1)
    m.count += 1
    result: torch.Tensor = h + m.mean + before
    return result


def assign_a_buffer(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.net(x)
    m.mean = 0.9 * m.mean + 0.1 * h.detach().mean(0)
    m.count = m.count + 1
    result: torch.Tensor = h + m.mean
    return result


def write_to_the_input(m: Any, x: torch.Tensor) -> torch.Tensor:
    x.add_(1.0)
    return m.net(x)  # type: ignore[no-any-return]


def write_to_slices(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.net(x).clone()
    h[h > 0] = 0.0
    h[:, ::2] += 1
    h[0] = x[1]
    return h  # type: ignore[no-any-return]


def return_views(m: Any, x: torch.Tensor) -> tuple[Any, ...]:
    h = m.net(x)
    left, right = h.chunk(2, -1)
    return left, right, h, x, m.net[0].weight, h.detach(), None, 3


def return_one_twice(m: Any, x: torch.Tensor) -> list[torch.Tensor]:
    h = m.net(x)
    return [h, h, h.view(-1)]


def draw_in_many_ways(m: Any, x: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(x.shape[0])
    noise = torch.randn_like(x).bernoulli_(0.3) + torch.empty_like(x).uniform_(-1, 1)
    result: torch.Tensor = m.net(x[order]) * noise + functional.gumbel_softmax(m.net(x))
    return result + functional.rrelu(x, training=True)


def keep_for_later(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.last = m.net(x)
    return m.last * 2  # type: ignore[no-any-return]


def gradients_in_part(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        h = m.net[:2](x)
        with torch.enable_grad():
            g = m.net(x)
    return h + g  # type: ignore[no-any-return]


def hook_a_tensor(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.net(x)
    h.register_hook(lambda g: g * 0.3)
    return h.sin()  # type: ignore[no-any-return]


def mixed_precision_inside(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        h = m.net(x)
    return m.net(h.float()).double()  # type: ignore[no-any-return]


def complex_numbers(m: Any, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch.fft.irfft(torch.fft.rfft(m.net(x)).abs().sqrt() + 1, n=8)
    return result


def map_over_rows(m: Any, x: torch.Tensor) -> Any:
    return torch.vmap(lambda row: m.net(row).sum())(x)


def use_a_number(m: Any, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = m.net(x) * x.sum().item()
    return result


def transposed(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.net(x.t().contiguous().t()).t()  # type: ignore[no-any-return]


def reentrant_checkpoint(m: Any, x: torch.Tensor) -> Any:
    return checkpoint(m.more[0], m.net(x), use_reentrant=True)


def plain_checkpoint(m: Any, x: torch.Tensor) -> Any:
    return checkpoint(m.more[0], m.net(x), use_reentrant=False)


def invert(m: Any, x: torch.Tensor) -> Any:
    h = m.net(x)
    product = h.t() @ h + torch.eye(8)
    return torch.linalg.inv(product), torch.linalg.solve(product, h.t())


def draw_into_any_layout(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.net(x).t().contiguous().t()
    functional.dropout(h, 0.2, training=True, inplace=True)
    noise = torch.zeros(6, 8)
    noise[:, 1:6].normal_()
    noise[::2].bernoulli_(0.3)
    result: torch.Tensor = h * noise.t().clone().t().uniform_()
    return result


def multiply_and_add(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.net(x) * 1.0
    h.addcmul_(x, x.tanh(), value=0.5)
    return h.addcdiv_(x, x.exp(), value=0.3).add_(x, alpha=0.7)  # type: ignore[no-any-return]


def change_a_parameter(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        m.net[0].weight.mul_(0.99)
    return m.net(x)  # type: ignore[no-any-return]


def return_a_buffer(m: Any, x: torch.Tensor) -> tuple[Any, ...]:
    h, old = m.net(x), m.mean[:4]
    m.mean.add_(h.detach().sum(0))
    return h, m.mean, old, h.topk(2, 1), h.mean(0).expand(6, 8)


class Halved(torch.autograd.Function):
    """Writes to its input, and has a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 3


def own_function(m: Any, x: torch.Tensor) -> Any:
    return Halved.apply(m.net(x) * 1)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "run",
    [
        invert,
        draw_into_any_layout,
        multiply_and_add,
        change_a_parameter,
        return_a_buffer,
        own_function,
        update_in_place,
        assign_a_buffer,
        write_to_the_input,
        write_to_slices,
        return_views,
        return_one_twice,
        draw_in_many_ways,
        keep_for_later,
        gradients_in_part,
        hook_a_tensor,
        mixed_precision_inside,
        complex_numbers,
        map_over_rows,
        use_a_number,
        transposed,
    ],
)
def test_trains_like_plain(run: Callable[..., Any]) -> None:
    assert_like_plain(Body(run), [torch.randn(6, 8)])


@pytest.mark.parametrize("run", [reentrant_checkpoint, plain_checkpoint])
@pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")
def test_checkpoints_that_the_model_has_already(run: Callable[..., Any]) -> None:
    part = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh())
    assert_like_plain(Body(run, part), [torch.randn(6, 8)])


def called_by_name(
    m: Any, given: dict[str, Any], *, scale: float = 1.0, mask: torch.Tensor | None = None
) -> OrderedDict[str, Any]:
    y = m.net(given["x"]) * scale
    return OrderedDict(y=y if mask is None else y * mask, given=[given["x"]])


def test_any_form_of_call() -> None:
    x, mask = torch.randn(6, 8), torch.rand(6, 8)
    for kwargs in ({}, {"scale": 2.0}, {"mask": mask}, {"mask": mask, "scale": 0.5}):
        assert_like_plain(Body(called_by_name), [{"x": x}], kwargs)


def draw_in_python(m: Any, x: torch.Tensor) -> Any:
    return m.net(x) * random.choice([1.0, 2.0])


def draw_from_a_generator(m: Any, x: torch.Tensor) -> Any:
    return m.net(x) * torch.rand(8, generator=m.generator)


def differentiate_inside(m: Any, x: torch.Tensor) -> Any:
    x = x.detach().requires_grad_(True)
    return torch.autograd.grad(m.net(x).sum(), x, create_graph=True)


def look_up_sparsely(m: Any, x: torch.Tensor) -> Any:
    return m.net(m.more[0](torch.arange(6)))


def set_the_random_state(m: Any, x: torch.Tensor) -> Any:
    torch.manual_seed(3)
    return m.net(x) * torch.rand(8)


def select_rows(m: Any, x: torch.Tensor) -> Any:
    return m.net(x)[x[:, 0] > 0]


def repeat_while(m: Any, x: torch.Tensor) -> Any:
    while x.norm() > 1:
        x = m.net(x) / 2
    return x


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (draw_in_python, "Python's random module"),
        (draw_from_a_generator, r"torch\.Generator"),
        (differentiate_inside, "double backward"),
        (look_up_sparsely, "gradient is sparse"),
        (set_the_random_state, "state of the random generator is set"),
        (select_rows, "depends on the values of a tensor"),
        (repeat_while, "branch depends on the values"),
    ],
)
def test_what_cannot_be_planned_is_named(
    run: Callable[..., Any], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    model: Any = Body(run, nn.Embedding(6, 8, sparse=True))
    model.generator = torch.Generator()
    with pytest.raises(CaptureError, match=says) as caught:
        planned(model, [torch.randn(6, 8)])
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_mistake_in_the_model_is_told_without_a_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(CaptureError, match="must have same reduction dim"):
        planned(Body(lambda m, x: m.net(x[:, :7])), [torch.randn(6, 8)])
    assert capfd.readouterr().err == ""
