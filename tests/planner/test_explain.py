import pytest

from memplan.planner.explain import Explanation, ModuleStory
from memplan.planner.pipeline import make_plan
from memplan.planner.schedule import Compute
from tests.planner.test_max_batch import chain


@pytest.fixture
def tight() -> Explanation:
    """The chain in its smallest memory: 10 bytes of parameters and three tensors of 100."""
    return Explanation(make_plan(chain(100), "min", solver="exhaustive"))


def named(story: Explanation, name: str) -> int:
    return [tensor.name for tensor in story.graph.tensors].index(name)


def test_what_is_there_at_the_peak_adds_up_to_it(tight: Explanation) -> None:
    plan = tight.plan
    assert sum(tensor.nbytes for tensor in tight.at_peak()) == plan.planned_peak_bytes == 310
    assert tight.at_peak()[-1].name == "w"
    assert tight.peak_text().startswith("The peak is 310 B, at step ")


def test_spans_are_those_of_the_schedule(tight: Explanation) -> None:
    last = len(tight.plan.schedule) - 1
    assert tight.stories[named(tight, "w")].spans == ((0, last),)
    for story in tight.stories:
        for (_, gone), (back, _) in zip(story.spans, story.spans[1:], strict=False):
            assert gone < back
    made_again = [s for s in tight.stories if s.runs > 1]
    assert sum(s.extra_ns for s in made_again) == tight.plan.timeline.time_ns - 120
    assert any(len(story.spans) > 1 for story in made_again)


def test_each_decision_has_its_reason(tight: Explanation) -> None:
    assert tight.why(named(tight, "w")) == "w (10 B) is a parameter: it stays."
    assert "is used up in its own pass" in tight.why(named(tight, "g3"))
    again = next(i for i, times, _ in tight.recomputed() if times)
    text = tight.why(again + 1)
    assert f"made again by 'f{again}'" in text
    assert "that frees 100 B for" in text


def test_a_tensor_that_is_kept_is_compared_with_what_is_made_again() -> None:
    story = Explanation(make_plan(chain(100), "82%", solver="exhaustive"))
    carried = [f"a{i}" for i in range(3)]
    kept = [n for n in carried if story.stories[named(story, n)].runs == 1]
    assert kept
    text = story.why(named(story, kept[0]))
    assert "is kept from forward to backward: a second run of" in text
    # Ten nanoseconds for a hundred bytes.
    assert "10 ns, 100.00 us a MB" in text
    assert "what the plan makes again takes 100.00 us a MB" in text


def test_with_room_for_all_nothing_is_made_again() -> None:
    story = Explanation(make_plan(chain(100), "100%"))
    assert story.recomputed() == []
    assert "the step fits without it" in story.why(named(story, "a0"))
    # Unlike the others, a3 is read only by the op right after it.
    assert story.modules() == (ModuleStory(module="", kept_bytes=400),)


def test_the_limit_is_explained(tight: Explanation) -> None:
    lines = tight.limit_text()
    assert lines[0].startswith("No plan that keeps or recomputes goes below 3")
    assert "parameters 10 B" in lines[1]
    assert "'b" in lines[2] or "'f" in lines[2]


def test_recomputed_ops_are_counted_from_the_schedule(tight: Explanation) -> None:
    runs = [step.op for step in tight.plan.schedule if isinstance(step, Compute)]
    assert {i: times for i, times, _ in tight.recomputed()} == {
        i: runs.count(i) - 1 for i in set(runs) if runs.count(i) > 1
    }
