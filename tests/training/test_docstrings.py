"""The docstring examples of training and of the modules below it run and print what they say."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import kerascnn

PACKAGES = ("callbacks", "legacy", "losses", "metrics", "optimizers", "training")


def modules():
    for name in PACKAGES:
        package = importlib.import_module(f"kerascnn.{name}")
        yield package.__name__
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield info.name


@pytest.mark.filterwarnings("ignore:The loss became NaN")
@pytest.mark.parametrize("name", list(modules()))
def test_examples(name):
    with kerascnn.device("cpu"):
        module = importlib.import_module(name)
        results = doctest.testmod(module, extraglobs={"keras": kerascnn, "np": np})
    assert results.failed == 0


def test_every_public_class_and_function_has_a_docstring():
    for name in PACKAGES[:-1]:
        package = importlib.import_module(f"kerascnn.{name}")
        for public in package.__all__:
            assert getattr(package, public).__doc__, f"{name}.{public}"
