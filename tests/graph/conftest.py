"""Runs every test of this folder on every device."""

import pytest

import kerascnn as keras

from . import helpers


@pytest.fixture(autouse=True)
def on_device(device):
    helpers.use_device(device)
    yield
    helpers.use_device("cpu")


@pytest.fixture
def on_cpu(device):
    """Skips tests of regions on a GPU: tests/regions runs generated kernels there."""
    if device != "cpu":
        pytest.skip("regions are formed by size there; the environment variable is the CPU's")
    with keras.device("cpu"):
        yield


@pytest.fixture
def regions(on_cpu, monkeypatch):
    """Forms regions on a CPU with the limits of a GPU."""
    monkeypatch.setenv("KERASCNN_CPU_REGIONS", "1")
