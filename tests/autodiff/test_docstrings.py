"""The examples in the docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import kerascnn as keras

MODULES = [
    *(info.name for info in pkgutil.walk_packages(keras.autodiff.__path__, "kerascnn.autodiff.")),
    "kerascnn.optimizers.clipping",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module, extraglobs={"keras": keras, "np": np})
    assert results.failed == 0
