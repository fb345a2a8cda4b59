"""Small random modules whose forward pass is a list of random instructions.

Every instruction takes values of shape (rows, width) and gives one of the same shape, so that any
two can follow each other. Together they do what models do: views, writes through them, random
draws, running statistics, shared weights, buffers, casts, parts without gradients.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Values: TypeAlias = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a forward pass.

    Attributes:
        name: Key in `INSTRUCTIONS`.
        reads: Indices of the values it takes; the second may go unread.
        choice: What it makes of them, such as which layer.
        amount: A number between 0 and 1 for it.
    """

    name: str
    reads: tuple[int, int]
    choice: int
    amount: float


class RandomModule(nn.Module):
    """Runs instructions over pools of layers, which several of them may share.

    Calling it takes one or two float tensors of shape (rows, width) and `rows` indices below 8,
    and returns what `outputs` and `container` say.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.rows = draw.choice((16, 48, 128, 256))
        self.width = draw.choice((8, 16, 32))
        self.num_inputs = draw.choice((1, 2))
        self.linears = nn.ModuleList(
            nn.Linear(self.width, self.width, bias=draw.random() < 0.7) for _ in range(3)
        )
        self.norms = nn.ModuleList((nn.BatchNorm1d(self.width), nn.LayerNorm(self.width)))
        self.convolution = nn.Conv1d(1, 2, 3, padding=1)
        self.embedding = nn.Embedding(8, self.width)
        self.register_buffer("mean", torch.zeros(self.width))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.program = _program(draw, self.num_inputs)
        # A plan knows tensors that are neither parameters nor buffers only where they are read.
        if any(line.name == "buffers" and line.choice >= 3 for line in self.program):
            self.table = torch.linspace(0, 1, self.width)
        self.container = draw.choice(("tensor", "tuple", "dict"))
        last = self.num_inputs + len(self.program) - 1
        others = [draw.randrange(self.num_inputs, last + 1) for _ in range(draw.randrange(3))]
        self.outputs = (last, *(place for place in others if place != last))
        for parameter in self.parameters():
            parameter.requires_grad_(draw.random() > 0.2)
        self.linears[0].weight.requires_grad_(True)
        if draw.random() < 0.3:
            self.linears[1].weight = self.linears[0].weight

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Run the program; the last input is the indices."""
        values = list(inputs[:-1])
        for line in self.program:
            made = INSTRUCTIONS[line.name](self, values, line, inputs[-1])
            values.append(made)
        found = [values[place] for place in self.outputs]
        if self.container == "tensor":
            return found[0]
        if self.container == "tuple":
            return (*found, found[0].detach().argmax(1), None)
        return {"main": found[0], "others": found[1:], "view": found[0].detach()[1:], "rows": 3}


def random_inputs(module: RandomModule, seed: int) -> list[torch.Tensor]:
    """Return inputs for a module; some of the float ones want a gradient."""
    draw = torch.Generator().manual_seed(seed)
    shape = (module.rows, module.width)
    floats = [torch.randn(shape, generator=draw) for _ in range(module.num_inputs)]
    if seed % 5 == 0:
        floats[0] = torch.randn(shape[::-1], generator=draw).t()
    if seed % 3 == 0:
        floats[-1].requires_grad_(True)
    return [*floats, torch.randint(0, 8, (module.rows,), generator=draw)]


def _program(draw: random.Random, num_inputs: int) -> tuple[Instruction, ...]:
    lines = [Instruction("linear", (0, 0), 0, 0.0)]
    for _ in range(draw.randrange(3, 14)):
        there = num_inputs + len(lines)
        # Most read the latest value, as layers do; the others make skip connections.
        first = there - 1 if draw.random() < 0.75 else draw.randrange(there)
        reads = (first, draw.randrange(there))
        name = draw.choice(tuple(INSTRUCTIONS))
        lines.append(Instruction(name, reads, draw.randrange(12), draw.random()))
    return tuple(lines)


def _linear(m: Any, x: torch.Tensor, line: Instruction) -> torch.Tensor:
    layer = m.linears[line.choice % 3]
    if line.choice < 9:
        return layer(x)  # type: ignore[no-any-return]
    return functional.linear(x, layer.weight.t())


def _activation(x: torch.Tensor, line: Instruction) -> torch.Tensor:
    functions: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        torch.relu,
        torch.tanh,
        functional.gelu,
        torch.sigmoid,
        functional.silu,
        functional.elu,
        functional.softplus,
        functional.hardtanh,
        torch.sin,
        lambda t: t.tanh().exp(),
        lambda t: t.softmax(1) * 8,
        lambda t: (t.log_softmax(1) / 8).square(),
    )
    return functions[line.choice](x)


def _written(x: torch.Tensor, y: torch.Tensor, line: Instruction) -> torch.Tensor:
    """Write into a fresh tensor, directly or through a view."""
    made, half = x * 1.0, x.shape[1] // 2
    match line.choice:
        case 0:
            made[:, :half].mul_(line.amount)
        case 1:
            made[0] = y[1]
        case 2:
            made.view(-1)[::3].add_(1)
        case 3:
            made.t()[0].fill_(line.amount)
        case 4:
            made[made > line.amount] = 0.0
        case 5:
            made.masked_fill_(y > line.amount, -1.0)
        case 6:
            made.chunk(2, 1)[1].clamp_(-line.amount, line.amount)
        case 7:
            made.index_add_(0, torch.arange(4), y[:4])
        case 8:
            made.copy_(y).add_(x)
        case 9:
            made.detach().add_(line.amount)
        case 10:
            made[:, half:] = y[:, :half].tanh()
        case _:
            made.addcmul_(x, y.tanh(), value=0.5)
    return made


def _in_place(x: torch.Tensor, line: Instruction) -> torch.Tensor:
    """Write into a value that others may read later, or that backward may have saved."""
    if line.choice < 4:
        return torch.relu_(x + 0.1)
    match line.choice % 4:
        case 0:
            return x.add_(line.amount)
        case 1:
            return x.mul_(0.5)
        case 2:
            return functional.dropout(x, 0.2, training=True, inplace=True)
        case _:
            return x.tanh_()


def _random_draw(m: Any, x: torch.Tensor, line: Instruction) -> torch.Tensor:
    match line.choice:
        case 0:
            return x * torch.rand_like(x)
        case 1:
            return x + torch.randn(x.shape[1])
        case 2:
            return x[torch.randperm(x.shape[0])]
        case 3:
            return x * torch.bernoulli(torch.sigmoid(x.detach()))
        case 4:
            return x + torch.empty_like(x).uniform_(-1, 1)
        case 5:
            return functional.alpha_dropout(x, 0.2, training=m.training)
        case 6:
            return functional.rrelu(x, training=m.training)
        case _:
            return functional.dropout(x, line.amount * 0.8, m.training)


def _viewed(x: torch.Tensor, line: Instruction) -> torch.Tensor:
    rows, width = x.shape
    match line.choice:
        case 0:
            return x.t().contiguous().t()
        case 1:
            return x.flip(0).roll(1, 1)
        case 2:
            return x.reshape(2, -1, width).transpose(0, 1).reshape(rows, width)
        case 3:
            return x + x.mean(0, keepdim=True).expand_as(x)
        case 4:
            first, second = x.chunk(2, 1)
            return torch.cat([second * first, first], 1)
        case 5:
            return torch.stack(x.split(width // 4, 1), 2).flatten(1)
        case 6:
            return x.unsqueeze(0).expand(2, rows, width).sum(0)
        case 7:
            return x.sort(1)[0]
        case 8:
            return x.cumsum(1) / width
        case 9:
            return x.max(1, keepdim=True)[0] + x
        case 10:
            return x * x.argmax(1, keepdim=True) / width
        case _:
            return x.gather(1, x.detach().argsort(1))


def _combined(x: torch.Tensor, y: torch.Tensor, line: Instruction) -> torch.Tensor:
    match line.choice % 6:
        case 0:
            return x + y
        case 1:
            return x * y.tanh()
        case 2:
            return torch.where(y > 0, x, y)
        case 3:
            return torch.cat([x, y], 1)[:, ::2]
        case 4:
            return functional.softmax(x @ y.t() / 8, 1) @ y
        case _:
            return torch.maximum(x, y)


def _buffers(m: Any, x: torch.Tensor, line: Instruction) -> torch.Tensor:
    if line.choice < 3:
        return x + m.mean.tanh()  # type: ignore[no-any-return]
    if line.choice < 6:
        m.mean = 0.9 * m.mean + 0.1 * x.detach().mean(0)
    elif line.choice < 9:
        m.mean.lerp_(x.detach().mean(0), 0.1)
        m.count += 1
    return x * m.table + m.mean + m.count  # type: ignore[no-any-return]


def _scoped(m: Any, x: torch.Tensor, line: Instruction) -> torch.Tensor:
    layer = m.linears[line.choice % 3]
    match line.choice % 6:
        case 0:
            with torch.no_grad():
                return x + layer(x)  # type: ignore[no-any-return]
        case 1:
            return x + layer(x).detach()  # type: ignore[no-any-return]
        case 2:
            with torch.autocast("cpu", torch.bfloat16):
                made = torch.tanh(layer(x))
            return made.float()
        case 3:
            return (x.double().square().mean(1, keepdim=True) * x).float()
        case 4:
            return checkpoint(  # type: ignore[no-any-return]
                lambda t: functional.dropout(torch.tanh(layer(t)), 0.3), x, use_reentrant=False
            )
        case _:
            x = x * 1.0
            x.register_hook(lambda gradient: gradient * 0.5) if x.requires_grad else None
            return x.sin()


INSTRUCTIONS: dict[str, Callable[[Any, Values, Instruction, torch.Tensor], torch.Tensor]] = {
    "linear": lambda m, v, line, ids: _linear(m, v[line.reads[0]], line),
    "activation": lambda m, v, line, ids: _activation(v[line.reads[0]], line),
    "norm": lambda m, v, line, ids: m.norms[line.choice % 2](v[line.reads[0]]),
    "written": lambda m, v, line, ids: _written(v[line.reads[0]], v[line.reads[1]], line),
    "in place": lambda m, v, line, ids: _in_place(v[line.reads[0]], line),
    "random draw": lambda m, v, line, ids: _random_draw(m, v[line.reads[0]], line),
    "view": lambda m, v, line, ids: _viewed(v[line.reads[0]], line),
    "combined": lambda m, v, line, ids: _combined(v[line.reads[0]], v[line.reads[1]], line),
    "buffers": lambda m, v, line, ids: _buffers(m, v[line.reads[0]], line),
    "scoped": lambda m, v, line, ids: _scoped(m, v[line.reads[0]], line),
    "convolution": lambda m, v, line, ids: m.convolution(v[line.reads[0]][:, None]).mean(1),
    "embedding": lambda m, v, line, ids: v[line.reads[0]] + m.embedding(ids),
}
