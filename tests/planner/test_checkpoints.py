from __future__ import annotations

from memplan.planner.checkpoints import (
    articulation_ops,
    forward_end,
    sequence_keeping,
    sequence_losing,
)
from tests.graphs import chain, unet, unit_chain


def test_the_boundary_ends_the_forward_pass() -> None:
    assert forward_end(chain(4)) == 5


def test_without_phases_the_peak_ends_it() -> None:
    # Keeping everything peaks at node 5, the first to read two others: 0 .. 4 are there.
    assert forward_end(unit_chain(4)) == 5


def test_every_inner_op_of_a_chain_is_an_articulation_point() -> None:
    assert articulation_ops(chain(4), 5) == (1, 2, 3)


def test_skips_leave_no_articulation_point_between_them() -> None:
    # down0 -> up0 closes a cycle through all others; only up0 is between them and the loss.
    graph = unet(2)
    names = [graph.ops[i].name for i in articulation_ops(graph, forward_end(graph))]
    assert names == ["up0"]


def test_a_segment_is_recomputed_once_when_first_needed() -> None:
    # f1 .. f4 and the loss are ops 0 .. 4; b4 .. b1 are 5 .. 8. Kept are a2 and what comes
    # after it; b2 reads a1, so f1 runs again before it.
    assert sequence_keeping(chain(4), {1}, 5)[5:] == (5, 6, 0, 7, 8)


def test_no_checkpoint_recomputes_everything_from_the_start() -> None:
    # b4 needs a3: f1, f2, f3 run again and a1, a2 stay for b2 and b3.
    assert sequence_keeping(chain(4), set(), 5) == (0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7, 8)


def test_what_is_let_go_is_made_again_from_what_stays() -> None:
    # a1 and a2 go after the loss: b3 reads a2, so f1 and f2 run again, and a1 stays for b2.
    lost = [name in ("a1", "a2") for name in (t.name for t in chain(4).tensors)]
    assert sequence_losing(chain(4), lost, 5) == (0, 1, 2, 3, 4, 5, 0, 1, 6, 7, 8)


def test_it_may_be_let_go_later_than_the_loss() -> None:
    # a1 goes after b4, the op 5, has run.
    lost = [t.name == "a1" for t in chain(4).tensors]
    assert sequence_losing(chain(4), lost, 6) == (0, 1, 2, 3, 4, 5, 6, 0, 7, 8)
