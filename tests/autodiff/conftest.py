"""Runs every test of this folder on every device."""

import pytest

import kerascnn as keras


@pytest.fixture(autouse=True)
def on_device(device):
    with keras.device(device):
        yield
