"""The examples in the docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import kerascnn

PARTS = ("ops", "layers", "models", "initializers", "activations", "saving", "symbolic", "utils")
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
TOP += ("backend", "interchange", "mixed_precision", "narrow_numbers", "quantizers")
TOP += ("registration", "serialization", "stateless", "tensor", "tracing", "tree", "trees")
TOP += ("variable", "versions")


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
        module = importlib.import_module(name)
        results = doctest.testmod(module, extraglobs={"keras": kerascnn, "np": np})
    assert results.failed == 0
