"""State that the host writes and programs read, without allocating anything per write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerascnn import _core, tracing
from kerascnn.variable import Variable


class StagedTensor:
    """A tensor with a fixed place on a device and, beside it, host memory to write from.

    Args:
        name: for errors and profiles.
        shape: its shape.
        dtype: its dtype.
        device: where it lives.
    """

    def __init__(self, name: str, shape: Sequence[int], dtype: str, device: str):
        self.core = _core.Variable(name, _core.zeros(list(shape), dtype, device))
        self._staging = (
            self.core.value if device == "cpu" else _core.zeros(list(shape), dtype, "cpu")
        )
        self._host = self._staging.numpy()
        self._copies = device != "cpu"

    @property
    def tensor(self) -> Any:
        return self.core.value

    @property
    def host(self) -> np.ndarray:
        """The host memory; call `flush` after writing into it."""
        return self._host

    def write(self, values: Any) -> None:
        self._host[...] = values
        self.flush()

    def flush(self) -> None:
        if self._copies:
            self.core.assign(self._staging)

    def read(self) -> np.ndarray:
        return self.core.value.numpy()


class StepState:
    """What every compiled step of a model reads and writes beside weights and metrics.

    `step` counts the batches of the pass over the data; `finite_steps` counts the steps before the
    loss first became NaN or infinite, from which that step's number follows without a look at each
    loss by the host.
    """

    def __init__(self, device: str):
        self.device = device
        self.step = StagedTensor("step", (), "int64", device)
        self.finite_steps = StagedTensor("finite_steps", (), "float32", device)


def device_of(variables: Sequence[Variable], default: str) -> str:
    """The one device that variables are on, `default` where there are none.

    Raises:
        ValueError: where they are on several.
    """
    devices = {variable.device for variable in variables}
    if len(devices) > 1:
        raise ValueError(
            f"The model's weights are on different devices, {' and '.join(sorted(devices))}. Build "
            "the whole model on one."
        )
    return devices.pop() if devices else default


def move_to(variables: Iterable[Variable], device: str) -> bool:
    """Moves the values that are elsewhere; whether there were any.

    State made before the device was chosen follows the model so. Programs compiled before a move
    still have the old place.
    """
    elsewhere = [variable for variable in variables if variable.device != device]
    with tracing.suspended():
        for variable in elsewhere:
            variable.core = _core.Variable(variable.path, variable.core.value.to(device))
    return bool(elsewhere)
