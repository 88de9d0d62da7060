"""Runs every test of this folder on every device."""

import pytest

from . import helpers


@pytest.fixture(autouse=True)
def on_device(device):
    helpers.use_device(device)
    yield
    helpers.use_device("cpu")
