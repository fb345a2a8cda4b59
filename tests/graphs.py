"""Training-step graphs for the solvers' tests, and random ones that use every feature."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import strategies as st

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor
from memplan.planner.limits import lower_limit
from memplan.planner.problem import Problem
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate

INSTANCES = Path(__file__).parents[2] / "shared" / "instances"
"""Published instances beside the checkout; tests that need them skip where they are missing."""


def unit_chain(length: int) -> Graph:
    """Return Checkmate's chain: 2 L + 1 unit nodes; i reads i - 1, and 2 L - i reads i < L."""
    inputs: list[set[int]] = [{i - 1} if i else set() for i in range(2 * length + 1)]
    for i in range(length):
        inputs[2 * length - i].add(i)
    return Graph(
        ops=tuple(
            Op(name=f"n{i}", inputs=tuple(sorted(read)), outputs=(i,), time_ns=1)
            for i, read in enumerate(inputs)
        ),
        tensors=tuple(Tensor(name=f"t{i}", nbytes=1) for i in range(2 * length + 1)),
    )


def chain(layers: int, nbytes: int = 1, time_ns: int = 1) -> Graph:
    """Return x -> f1 .. fn -> loss, then bn .. b1; b_i reads a_{i-1} and the gradient g_i.

    x is given and g0, the gradient of x, is pinned. Tensors: x, a1 .. an, gn .. g0.
    """
    tensors = [Tensor(name="x", nbytes=nbytes, kind=Kind.INPUT)]
    tensors += [Tensor(name=f"a{i}", nbytes=nbytes) for i in range(1, layers + 1)]
    tensors += [
        Tensor(name=f"g{i}", nbytes=nbytes, kind=Kind.ACTIVATION if i else Kind.GRADIENT)
        for i in range(layers, -1, -1)
    ]
    gradient = {i: 2 * layers + 1 - i for i in range(layers + 1)}
    ops = [
        Op(name=f"f{i}", inputs=(i - 1,), outputs=(i,), time_ns=time_ns)
        for i in range(1, layers + 1)
    ]
    ops.append(Op(name="loss", inputs=(layers,), outputs=(gradient[layers],), time_ns=time_ns))
    ops += [
        Op(
            name=f"b{i}",
            inputs=(i - 1, gradient[i]),
            outputs=(gradient[i - 1],),
            time_ns=time_ns,
            phase=Phase.BACKWARD,
        )
        for i in range(layers, 0, -1)
    ]
    return Graph(ops=tuple(ops), tensors=tuple(tensors))


def detour() -> Graph:
    """Return the graph on which stages in captured order need more memory than others.

    `wide` fills the device, so A and C go and are made again for `end`: from a and c, which are
    large. In the order a, c, A, C they are there together with the output of `wide`; in the
    order a, A, c, C they are not.
    """
    sizes = {"a": 5, "c": 5, "A": 1, "C": 1, "w": 3, "y": 0}
    reads = {"a": "", "c": "", "A": "a", "C": "c", "w": "", "y": "ACw"}
    number = {name: i for i, name in enumerate(sizes)}
    return Graph(
        ops=tuple(
            Op(
                name=name,
                inputs=tuple(number[x] for x in reads[name]),
                outputs=(number[name],),
                time_ns=1,
                workspace_bytes=9 if name == "w" else 0,
                recomputable=name != "w",
            )
            for name in sizes
        ),
        tensors=tuple(Tensor(name=name, nbytes=size) for name, size in sizes.items()),
    )


def unet(depth: int) -> Graph:
    """Return an encoder and decoder with skips: level i has 2^-i of the bytes of level 0.

    Ops: down 0 .. d, up d-1 .. 0 (reading the skip), loss, and a backward op for each of them
    that reads what it read and the gradient above.
    """
    sizes = [2 ** (depth - i) * 4 for i in range(depth + 1)]
    tensors = [Tensor(name="x", nbytes=sizes[0], kind=Kind.INPUT)]
    ops: list[Op] = []

    def add(name: str, inputs: tuple[int, ...], nbytes: int, phase: Phase, kind: Kind) -> int:
        tensors.append(Tensor(name=name, nbytes=nbytes, kind=kind))
        made = len(tensors) - 1
        ops.append(Op(name=name, inputs=inputs, outputs=(made,), time_ns=nbytes, phase=phase))
        return made

    forward: list[tuple[tuple[int, ...], int]] = []
    levels: list[int] = []
    top = 0
    for i in range(depth + 1):
        forward.append(((top,), sizes[i]))
        top = add(f"down{i}", (top,), sizes[i], Phase.FORWARD, Kind.ACTIVATION)
        levels.append(top)
    for i in range(depth - 1, -1, -1):
        forward.append(((top, levels[i]), sizes[i]))
        top = add(f"up{i}", (top, levels[i]), sizes[i], Phase.FORWARD, Kind.ACTIVATION)
    gradient = add("loss", (top,), sizes[0], Phase.FORWARD, Kind.ACTIVATION)
    for k, (inputs, nbytes) in enumerate(reversed(forward)):
        last = k == len(forward) - 1
        kind = Kind.GRADIENT if last else Kind.ACTIVATION
        gradient = add(f"back{k}", (*inputs, gradient), nbytes, Phase.BACKWARD, kind)
    return Graph(ops=tuple(ops), tensors=tuple(tensors))


@st.composite
def random_graphs(draw: st.DrawFn, max_ops: int = 10) -> Graph:
    """Draw a small graph with every feature of the IR, each in a part of the cases.

    Several components, multi-output ops, pinned outputs, zero sizes and costs, workspace, ops
    that must not run twice or have to run in order, and a backward phase from a drawn op on.
    As in a training step, the second half reads the first half backwards.
    """
    return _random_graph(random.Random(draw(st.integers(0, 2**32 - 1))), max_ops)


def _random_graph(rng: random.Random, max_ops: int) -> Graph:
    count = rng.randint(max(1, max_ops - 4), max_ops)
    boundary = rng.choice((count, count // 2 + 1, count // 2 + 2))
    plain = rng.random() < 0.4
    tensors = [Tensor(name="given", nbytes=rng.randint(0, 2), kind=Kind.PARAM)]
    ops: list[Op] = []
    for i in range(count):
        reads = rng.sample(range(len(tensors)), min(len(tensors), rng.choice((0, 1, 1, 2))))
        newest = ops[-1].outputs if ops else ()
        mirror = ops[count - 1 - i].outputs if 2 * i >= count else ()
        reads += [rng.choice(made) for made in (newest, mirror) if made and rng.random() < 0.7]
        outputs = range(len(tensors), len(tensors) + rng.choice((1, 1, 1, 1, 2, 2, 0)))
        for t in outputs:
            kind = Kind.OUTPUT if rng.random() < 0.1 else Kind.ACTIVATION
            tensors.append(Tensor(name=f"t{t}", nbytes=rng.randint(0, 5), kind=kind))
        ops.append(
            Op(
                name=f"op{i}",
                inputs=tuple(dict.fromkeys(reads)),
                outputs=tuple(outputs),
                phase=Phase.FORWARD if i < boundary else Phase.BACKWARD,
                time_ns=rng.choice((0, 1, 2, 3, 5)),
                workspace_bytes=rng.choice((0, 0, 0, 2, 5)),
                recomputable=plain or rng.random() < 0.8,
                in_order=not plain and rng.random() < 0.2,
            )
        )
    return Graph(ops=tuple(ops), tensors=tuple(tensors))


@st.composite
def tight_problems(draw: st.DrawFn, max_ops: int = 10) -> Problem:
    """Draw a random graph with a budget from its lower limit to just below its plain peak."""
    graph = draw(random_graphs(max_ops))
    plain = schedule_of(graph, range(len(graph.ops)))
    limit_bytes, _ = lower_limit(graph)
    most = max(limit_bytes, simulate(graph, plain).peak_bytes - 1)
    return Problem(graph=graph, budget_bytes=draw(st.integers(limit_bytes, most)))
