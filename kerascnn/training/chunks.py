"""Memory through which data reaches a device: page-locked on the host, and filled meanwhile."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn.training.device_arrays import Array


def host_memory(shape: Sequence[int], dtype: str, device: str) -> _core.Tensor:
    """Allocates host memory for uploads to `device`, page-locked if the device has that."""
    try:
        return _core.empty_for_upload(list(shape), dtype, device)
    except _core.OutOfMemoryError as error:
        warnings.warn(
            f"Batches are copied to {device} from ordinary memory, which is slower: {error}.",
            RuntimeWarning,
            stacklevel=2,
        )
        return _core.empty(list(shape), dtype, "cpu")


class Chunks:
    """Two places for rows of arrays on a device: one is filled while steps read the other.

    Args:
        arrays: what there will be rows of.
        rows: how many rows a place has.
        device: the device.

    Attributes:
        key: what the places are for.
        tensors: both places of each array, one behind the other.
    """

    def __init__(self, arrays: Sequence[Array], rows: int, device: str):
        self._rows = rows
        self.key = self.key_for(arrays, rows)
        specs = [((2 * rows, *array.shape[1:]), array.dtype.name) for array in arrays]
        self.tensors = [_core.empty(list(shape), dtype, device) for shape, dtype in specs]
        # A CPU reads the rows where they are written.
        self._copies = device != "cpu"
        self._sources = self.tensors
        if self._copies:
            self._sources = [host_memory(shape, dtype, device) for shape, dtype in specs]
        self._hosts = [source.numpy() for source in self._sources]
        self._uploads: list[Any] = [_core.Upload(device) for _ in range(2)]

    @staticmethod
    def key_for(arrays: Sequence[Array], rows: int) -> tuple:
        """Returns the `key` of places for so many rows of such arrays."""
        return rows, tuple((array.shape[1:], array.dtype.name) for array in arrays)

    def load(self, place: int, arrays: Sequence[Any], which: slice | np.ndarray) -> None:
        """Fills a place with rows of the arrays, once what was sent from it before has arrived.

        The steps that read the place must have been enqueued, and `release` called.
        """
        self._uploads[place].wait()
        count = 0
        for host, array in zip(self._hosts, arrays, strict=True):
            into = host[place * self._rows : (place + 1) * self._rows]
            if isinstance(which, slice):
                rows = array[which]
                count = len(rows)
                into[:count] = rows
            else:
                count = len(which)
                np.take(array, which, axis=0, out=into[:count], mode="clip")
        if self._copies:
            self._uploads[place].send(self.tensors, self._sources, place * self._rows, count)

    def release(self, place: int) -> None:
        """Notes that the steps enqueued so far are the last that read the place."""
        self._uploads[place].mark_used()
