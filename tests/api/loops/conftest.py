"""Fixtures of the tests of loops and choices."""

import pytest


@pytest.fixture(autouse=True)
def nodes_on_every_device(monkeypatch):
    monkeypatch.setenv("KERASCNN_CUDA_BODIES", "1")


@pytest.fixture
def data(rng):
    return {
        "w": 0.5 * rng.standard_normal((4, 4)),
        "x": rng.standard_normal((7, 3, 4)),
        "h": rng.standard_normal((3, 4)),
    }
