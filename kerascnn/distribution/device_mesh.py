"""The devices that train together, one for each process, and their arrangement."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn.device import current as current_device
from kerascnn.distribution import processes

_CPU_DEVICES = "KERASCNN_CPU_DEVICES"


def list_devices(device_type: str | None = None) -> list[str]:
    """The devices of all processes that train together.

    Args:
        device_type: `"cpu"` or `"gpu"`; by default what this process computes on.

    Returns:
        Their names. Of several processes, number i is the device of process i that it trains on;
        there are none of the other kind. Of one process, they are its CPU or all of its GPUs.

    Raises:
        ValueError: for another `device_type`.

    >>> keras.distribution.list_devices("cpu")
    ['cpu:0']
    """
    kind = current_device().partition(":")[0] if device_type is None else device_type.lower()
    if kind not in ("cpu", "gpu", "cuda"):
        raise ValueError(
            f"`device_type` must be 'cpu' or 'gpu'. Received: device_type={device_type!r}"
        )
    kind = "cpu" if kind == "cpu" else "gpu"
    if processes.num_processes() > 1:
        used = processes.device_kind()
        return [f"{kind}:{i}" for i in range(processes.num_processes() if kind == used else 0)]
    if kind == "cpu":
        return [f"cpu:{i}" for i in range(_num_cpu_devices())]
    usable = [name for name, is_usable, _ in _core.list_devices() if is_usable and name != "cpu"]
    return [name.replace("cuda", "gpu") for name in usable]


def _num_cpu_devices() -> int:
    """Returns how many devices the CPU counts as, for trying out what several devices do."""
    text = os.environ.get(_CPU_DEVICES, "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(
            f"{_CPU_DEVICES} must be a whole number above 0, by default 1. Received: {text!r}"
        )
    return int(text)


def get_device_count(device_type: str | None = None) -> int:
    """How many devices `list_devices` names.

    Args:
        device_type: see `list_devices`.

    Returns:
        The number.

    Raises:
        ValueError: see `list_devices`.

    >>> keras.distribution.get_device_count("cpu")
    1
    """
    return len(list_devices(device_type))


class DeviceMesh:
    """Devices in a grid with named axes.

    Args:
        shape: the sizes of the axes.
        axis_names: their names.
        devices: names as `list_devices` gives them, which it gives by default.

    Raises:
        ValueError: for sizes that don't fit the names or the devices, and a device listed twice.

    >>> mesh = keras.distribution.DeviceMesh((1,), ["batch"], ["cpu:0"])
    >>> mesh.devices.tolist()
    ['cpu:0']
    """

    def __init__(self, shape: Sequence[int], axis_names: Sequence[str], devices: Any = None):
        if not shape or not axis_names or len(shape) != len(axis_names):
            raise ValueError(
                "`shape` and `axis_names` need one entry for each axis, and at least one. "
                f"Received: shape={shape}, axis_names={axis_names}"
            )
        found = np.array(list_devices() if devices is None else devices)
        names = [str(name) for name in found.reshape(-1)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"A device can't be listed twice: {', '.join(twice)} in {names}")
        if math.prod(shape) != len(names):
            raise ValueError(
                f"A mesh of shape {tuple(shape)} has {math.prod(shape)} devices. Received "
                f"{len(names)}: {names}"
            )
        self._shape = tuple(int(n) for n in shape)
        self._axis_names = list(axis_names)
        self._devices = np.reshape(np.array(names), self._shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self._shape

    @property
    def axis_names(self) -> list[str]:
        """The names of the axes."""
        return self._axis_names

    @property
    def devices(self) -> np.ndarray:
        """The names of the devices, an array of the mesh's shape."""
        return self._devices

    def __repr__(self) -> str:
        return f"<DeviceMesh shape={self.shape}, axis_names={self.axis_names}>"
