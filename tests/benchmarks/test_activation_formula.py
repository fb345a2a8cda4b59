import pytest

pytest.importorskip("transformers")

from benchmarks.activation_formula import Sizes, layer_bytes


@pytest.mark.parametrize("sizes", [Sizes(batch=2, tokens=128, width=256, heads=8)])
def test_a_layer_keeps_what_the_published_formula_says(sizes: Sizes) -> None:
    assert sum(layer_bytes(sizes).values()) == pytest.approx(sizes.formula_bytes, rel=0.01)
