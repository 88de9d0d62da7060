"""Devices that the tensor tests run on."""

import gc
import sys

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


@pytest.fixture
def settled_memory():
    """Frees what other tests left behind, including the traceback of a failure."""
    sys.last_value = sys.last_traceback = None
    devices = [name for name, usable, _ in _core.list_devices() if usable]
    counts = [-2, -1]
    while counts[-1] != counts[-2]:
        gc.collect()
        counts.append(sum(_core.memory_stats(name)["allocated"] for name in devices))
    # A smaller request may get a larger free block, whose whole size would count.
    for name in devices:
        _core.release_cached(name)
