"""Fixtures of the tests of examples and benchmarks."""

import sys
from pathlib import Path

import numpy as np
import pytest

from .scripts import BENCHMARKS, ROOT


def importing(monkeypatch, folder):
    """Yields a function that imports a script of a folder, which is no package."""
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)

    def load(name):
        return __import__(name)

    yield load
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == folder:
            del sys.modules[name]


@pytest.fixture
def module(monkeypatch):
    """Imports a module of the benchmarks."""
    yield from importing(monkeypatch, BENCHMARKS)


@pytest.fixture
def example(monkeypatch):
    """Imports an example."""
    yield from importing(monkeypatch, ROOT / "examples")


@pytest.fixture(scope="session")
def little_cifar10(tmp_path_factory):
    """A folder with CIFAR-10's files in their plain form: 40 images to train on, 12 to test."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("cifar10")
    files = {f"data_batch_{i}.bin": 8 for i in range(1, 6)} | {"test_batch.bin": 12}
    for name, count in files.items():
        rows = rng.integers(0, 256, (count, 1 + 3 * 32 * 32), np.uint8)
        rows[:, 0] %= 10
        (folder / name).write_bytes(rows.tobytes())
    return folder
