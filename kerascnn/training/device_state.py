"""State that the host writes and programs read, without an allocation for each write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn.training.device_arrays import DeviceArray
from kerascnn.variable import Variable

# So many orders are kept: of whole batches and the last one, for a few sets of data, of at most so
# many rows each.
_MAX_ORDERS = 8
_MAX_KEPT_ROWS = 1 << 18
# The device holds so many positions of the step counter ready.
_POSITIONS = 1 << 12


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
        """Returns the host memory; call `flush` after writing to it."""
        return self._host

    def write(self, values: Any) -> None:
        if isinstance(values, DeviceArray):
            self.core.assign(values.tensor)
            return
        self._host[...] = values
        self.flush()

    def flush(self) -> None:
        if self._copies:
            self.core.assign(self._staging)

    def clear(self) -> None:
        """Sets it to zero; unlike `write`, this does not wait for the device."""
        self.core.value.fill_zero()

    def read(self) -> np.ndarray:
        return self.core.value.numpy()


class StepState:
    """What every compiled step of a model reads and writes beside weights and metrics.

    `step` counts the batches that steps have taken from memory on the device; `finite_steps` counts
    the steps before the loss first became NaN or infinite, from which that step's number follows
    without a look at each loss by the host.

    Attributes:
        arena: the memory of intermediate results, which large steps use in turns.
        ring: the memory for batches on their way to the device, once there is some.
        waiting: the route that has batches in it whose steps are not enqueued yet.
        parts: the layers of the model and what they own, where they were just looked for.
        warned_of: what recorded steps do once only, as far as it was warned of.
        free_places: places for pieces of data that no feed uses now, by what they are for.
        kept_feeds: feeds of data that was used once, for data of the same form.
        others: where several devices of this process train, the states of the others.
    """

    def __init__(self, device: str):
        self.device = device
        self.arena = _core.ArenaMemory(device)
        self.step = StagedTensor("step", (), "int64", device)
        self.finite_steps = StagedTensor("finite_steps", (), "float32", device)
        self.ring: Any = None
        self.waiting: Any = None
        self.parts: Any = None
        self.warned_of: set[str] = set()
        self.free_places: dict[Any, Any] = {}
        self.kept_feeds: Any = None
        self.others: list[StepState] = []
        self._in_order: dict[tuple[int, int], _core.Tensor] = {}
        self._positions: _core.Tensor | None = None
        self._reader: object = None
        self._position = 0

    def seek(self, reader: object, position: int) -> None:
        """Puts `step` where `reader` goes on: its own steps have brought it there, or others'.

        Several read in turn, such as the training data of a fit and those of its validation.
        """
        if self._reader is reader and self._position == position:
            return
        self._reader, self._position = None, position
        if position == 0:
            self.step.clear()
        elif position < _POSITIONS and self.device != "cpu":
            self.step.core.assign(self._position_on_device(position))
        else:
            self.step.write(position)
        self._reader = reader

    def _position_on_device(self, position: int) -> _core.Tensor:
        """Returns a tensor to copy from, which does not wait for the device as a number does."""
        if self._positions is None:
            # Copies want their sources aligned, so each position takes 16 bytes.
            pairs = np.arange(_POSITIONS, dtype=np.int64).repeat(2)
            self._positions = _core.from_numpy(pairs, self.device)
        return self._positions.piece([], "int64", 16 * position)

    def in_order(self, first: int, count: int) -> Any:
        """Returns the order `first`, `first + 1`, ... on the device; nobody may change it."""
        key = (first, count)
        order = self._in_order.pop(key, None)
        if order is None:
            rows = np.arange(first, first + count, dtype=np.int32)
            order = _core.from_numpy(rows, self.device)
            if count > _MAX_KEPT_ROWS:
                return order
            if len(self._in_order) >= _MAX_ORDERS:
                self._in_order.pop(next(iter(self._in_order)))
        self._in_order[key] = order
        return order

    def depart(self, reader: object, position: int) -> None:
        """Prepares for steps from `reader`'s batch at `position` on."""
        self.seek(reader, position)
        self._reader = None  # if a step fails, nobody knows how many ran

    def arrive(self, reader: object, position: int) -> None:
        """Notes that such steps have brought the counter to `position`."""
        self._reader, self._position = reader, position

    def flush(self) -> None:
        """Enqueues the steps of all batches that were taken from a source."""
        if self.waiting is not None:
            self.waiting.flush()


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
    for variable in elsewhere:
        variable.move_to(device)
    return bool(elsewhere)
