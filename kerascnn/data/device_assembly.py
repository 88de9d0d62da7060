"""Batches of files that a GPU decodes, read by several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from kerascnn.data import elements
from kerascnn.data.assembly import Assembly


class BatchDecoder(Protocol):
    """What decodes batches on a GPU."""

    def begin(self, rows: int) -> Any:
        """Begins a batch, with the methods `put(row, image)` and `decode()`."""

    def read(self, batch: Any, files: Sequence[Any], first: int) -> list[bool]:
        """Reads files for the rows from `first` on; returns which of them the GPU decodes."""


class DeviceAssembly(Assembly):
    """A batch that is being made, whose images end up on a GPU.

    The threads that fill places read files. The one that fills the last place has the GPU decode
    them all.

    Args:
        indices: The numbers of the samples.
        make: Makes the image of a number on the host, where the GPU cannot; None leaves it out.
        decoder: Decodes the others.
        files: What it decodes.
    """

    def __init__(
        self,
        indices: Sequence[int] | np.ndarray[Any, Any],
        make: Callable[[int], Any],
        decoder: BatchDecoder,
        files: Sequence[Any],
    ):
        super().__init__(indices, make, elements.stacked, files=files)
        count = len(self.indices)
        self._decoder, self._rows = decoder, decoder.begin(count)
        self._is_there = np.zeros(count, bool)
        self._taken = np.zeros(count, bool)  # by the GPU
        self._left = count
        self._images: Any = None

    def fill(self, places: range) -> None:
        """Makes the samples of some places, or reads their files for the GPU."""
        files = self._files[places.start : places.stop]
        taken = self._decoder.read(self._rows, files, places.start)
        for place, is_taken in zip(places, taken, strict=True):
            self._taken[place] = self._is_there[place] = is_taken
            if not is_taken:
                self._make_on_host(place)
        with self._lock:
            self._left -= len(places)
            is_last = self._left == 0
        if is_last:
            self._decode()

    def _make_on_host(self, place: int) -> None:
        image = self._make(int(self.indices[place]))
        self._is_there[place] = image is not None
        if image is not None:
            self._rows.put(place, np.ascontiguousarray(image))

    def _decode(self) -> None:
        if self._is_there.any():
            self._images = self._rows.decode()
            if self._images is None:  # one of the files is none for nvJPEG, which does not say it
                for place in np.flatnonzero(self._taken):
                    self._make_on_host(int(place))
                if self._is_there.any():
                    self._images = self._rows.decode()
        self._rows = None  # and the memory of the files

    def finish(self) -> tuple[Any, np.ndarray[Any, Any]]:
        """See `Assembly`; the batch is a tensor on the GPU."""
        return self._images, self.indices[self._is_there]
