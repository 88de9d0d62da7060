"""Fixtures of the tests of examples and benchmarks."""

import sys
from pathlib import Path

import pytest

from .scripts import BENCHMARKS


@pytest.fixture
def module(monkeypatch):
    """Imports a module of the benchmarks, which are scripts in one folder and not a package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)

    def load(name):
        return __import__(name)

    yield load
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == BENCHMARKS:
            del sys.modules[name]
