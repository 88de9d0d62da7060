"""Devices that the tensor tests run on."""

import pytest

from kerascnn import _core


@pytest.fixture(params=["cpu", "cuda:0"])
def device(request):
    """The test runs on the CPU and, where there is one, on the first GPU."""
    for name, usable, description in _core.list_devices():
        if name == request.param:
            if not usable:
                pytest.skip(description)
            return name
    raise AssertionError(f"{request.param} is not in the list of devices")
