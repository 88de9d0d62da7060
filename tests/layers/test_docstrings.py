"""The examples in the docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import kerascnn

PARTS = ("ops", "layers", "models", "initializers", "activations", "symbolic")
TOP = (
    "config",
    "constraints",
    "device",
    "dtypes",
    "dtype_policies",
    "naming",
    "random",
    "regularizers",
)
TOP += ("serialization", "tensor", "tracing", "tree", "trees", "utils", "variable", "versions")


def modules():
    for name in TOP:
        yield f"kerascnn.{name}"
    for part in PARTS:
        package = importlib.import_module(f"kerascnn.{part}")
        yield package.__name__
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield info.name


@pytest.mark.parametrize("name", list(modules()))
def test_examples(name):
    with kerascnn.device("cpu"):
        results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
