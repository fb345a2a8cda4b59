"""Graphs small enough to answer by hand; the answers stand in the docstrings."""

from __future__ import annotations

from memplan.graph_capture.graph import Graph, Kind, Op, Phase, Tensor


def chain() -> Graph:
    """x -> a -> b -> y, one byte each; x is given, y is the output; each op takes 1 ns.

    Kept in order: 2 bytes while f runs, 3 while g and h run.
    """
    return Graph(
        name="chain",
        tensors=(
            Tensor(name="x", nbytes=1, kind=Kind.INPUT),
            Tensor(name="a", nbytes=1),
            Tensor(name="b", nbytes=1),
            Tensor(name="y", nbytes=1, kind=Kind.OUTPUT),
        ),
        ops=(
            Op(name="f", inputs=(0,), outputs=(1,), time_ns=1),
            Op(name="g", inputs=(1,), outputs=(2,), time_ns=1),
            Op(name="h", inputs=(2,), outputs=(3,), time_ns=1),
        ),
    )


def diamond() -> Graph:
    """x 1 -> a 2 -> (b 3, c 4) -> y 5 bytes.

    Kept in order: split 1+2, left 1+2+3, right 1+2+3+4, join 1+3+4+5 = 13 bytes.
    """
    return Graph(
        name="diamond",
        tensors=(
            Tensor(name="x", nbytes=1, kind=Kind.INPUT),
            Tensor(name="a", nbytes=2),
            Tensor(name="b", nbytes=3),
            Tensor(name="c", nbytes=4),
            Tensor(name="y", nbytes=5, kind=Kind.OUTPUT),
        ),
        ops=(
            Op(name="split", inputs=(0,), outputs=(1,), time_ns=1),
            Op(name="left", inputs=(1,), outputs=(2,), time_ns=2),
            Op(name="right", inputs=(1,), outputs=(3,), time_ns=3),
            Op(name="join", inputs=(2, 3), outputs=(4,), time_ns=4),
        ),
    )


def two_outputs() -> Graph:
    """x 1 -> (p 10, q 20) by one op; p -> s 1; then (p, q, s) -> y 1 byte.

    Kept in order: pair 1+30, first 1+30+1, last 1+30+1+1 = 33 bytes; 4+2+1 = 7 ns.
    """
    return Graph(
        name="two outputs",
        tensors=(
            Tensor(name="x", nbytes=1, kind=Kind.INPUT),
            Tensor(name="p", nbytes=10),
            Tensor(name="q", nbytes=20),
            Tensor(name="s", nbytes=1),
            Tensor(name="y", nbytes=1, kind=Kind.OUTPUT),
        ),
        ops=(
            Op(name="pair", inputs=(0,), outputs=(1, 2), time_ns=4),
            Op(name="first", inputs=(1,), outputs=(3,), time_ns=2),
            Op(name="last", inputs=(1, 2, 3), outputs=(4,), time_ns=1),
        ),
    )


def hourglass() -> Graph:
    """A training step whose first activation, 100 bytes, is read again at the very end.

    Kept in order: the peak is at widen, x 1 + big 100 + small 1 + loss 1 + wide 50 = 153 bytes,
    and the step takes 10 + 5*1 = 15 ns. With grow run again before finish, big is away while
    wide is there: the peak is at finish, x 1 + loss 1 + seed 1 + big 100 + grad 1 = 104 bytes,
    in 25 ns. No schedule needs less: finish must read big and seed and write grad while the
    loss and x stay.
    """
    return Graph(
        name="hourglass",
        tensors=(
            Tensor(name="x", nbytes=1, kind=Kind.INPUT),
            Tensor(name="big", nbytes=100),
            Tensor(name="small", nbytes=1),
            Tensor(name="loss", nbytes=1, kind=Kind.OUTPUT),
            Tensor(name="wide", nbytes=50, kind=Kind.TEMPORARY),
            Tensor(name="seed", nbytes=1, kind=Kind.TEMPORARY),
            Tensor(name="grad", nbytes=1, kind=Kind.GRADIENT),
        ),
        ops=(
            Op(name="grow", inputs=(0,), outputs=(1,), time_ns=10),
            Op(name="squash", inputs=(1,), outputs=(2,), time_ns=1),
            Op(name="lose", inputs=(2,), outputs=(3,), time_ns=1),
            Op(name="widen", inputs=(2,), outputs=(4,), phase=Phase.BACKWARD, time_ns=1),
            Op(name="narrow", inputs=(4,), outputs=(5,), phase=Phase.BACKWARD, time_ns=1),
            Op(name="finish", inputs=(1, 5), outputs=(6,), phase=Phase.BACKWARD, time_ns=1),
        ),
    )


HOURGLASS_RECOMPUTED = (0, 1, 2, 3, 4, 0, 5)
"""The ops of the 104-byte schedule of `hourglass`, in order."""
