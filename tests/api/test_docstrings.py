"""The examples in the docstrings of ops and random have to run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import kerascnn

MODULES = [
    *(info.name for info in pkgutil.walk_packages(kerascnn.ops.__path__, "kerascnn.ops.")),
    "kerascnn.random",
    "kerascnn.dtypes",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    with kerascnn.device("cpu"):
        results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_every_public_function_has_a_docstring():
    for package in (kerascnn.ops, kerascnn.ops.image, kerascnn.random):
        for name in getattr(package, "__all__", [n for n in vars(package) if n[0] != "_"]):
            public = getattr(package, name)
            assert not callable(public) or public.__doc__, name
