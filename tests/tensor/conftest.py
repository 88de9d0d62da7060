"""Devices that the tensor tests run on."""

import gc
import sys

import pytest

from kerascnn import _core


@pytest.fixture(params=["cpu", "cuda:0"])
def device(request):
    """The CPU and, where there is one, the first GPU."""
    for name, usable, description in _core.list_devices():
        if name == request.param:
            if not usable:
                pytest.skip(description)
            return name
    raise AssertionError(f"{request.param} is not in the list of devices")


@pytest.fixture
def settled_memory():
    """Frees what other tests left behind, a failure's traceback too, until nothing more goes."""
    sys.last_value = sys.last_traceback = None
    devices = [name for name, usable, _ in _core.list_devices() if usable]
    counts = [-2, -1]
    while counts[-1] != counts[-2]:
        gc.collect()
        counts.append(sum(_core.memory_stats(name)["allocated"] for name in devices))
    # A larger block that is free would serve a smaller request, and count with its own size.
    for name in devices:
        _core.release_cached(name)
