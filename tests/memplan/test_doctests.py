from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import memplan

pytest.importorskip("torch")

MODULES = [
    module.name
    for module in pkgutil.walk_packages(memplan.__path__, "memplan.")
    if not module.ispkg and not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
