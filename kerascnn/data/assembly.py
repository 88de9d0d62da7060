"""Batches whose samples several threads make, each in its place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from kerascnn import _core, dtypes
from kerascnn.data import elements

# So many samples are one piece of work for a thread. Handing out one takes tens of microseconds.
PIECE = 8


class Writer(Protocol):
    """What makes arrays of files, of `shape` and `dtype`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def write(self, files: Any, images: np.ndarray[Any, Any]) -> list[bool]:
        """Writes an array for each file; returns which are there."""


class Assembly:
    """A batch that is being made.

    Arrays of one shape are written side by side into the batch by the threads that make them, so
    that nobody has to stack them afterwards.

    Args:
        indices: The numbers of the samples.
        make: Makes the sample of a number; None leaves it out.
        stack: Makes a batch of samples that are no arrays of one shape. Where it is another than
            `elements.stacked`, it makes all batches.
        writer: Makes what it can of the samples, a piece at once; `make` makes the others.
        files: What `writer` makes them of.
    """

    def __init__(
        self,
        indices: Sequence[int] | np.ndarray[Any, Any],
        make: Callable[[int], Any],
        stack: Callable[[list[Any]], Any],
        writer: Writer | None = None,
        files: Sequence[Any] | None = None,
    ):
        self.indices = np.asarray(indices)
        self._make, self._stack = make, stack
        self._writer, self._files = writer, files or ()
        self._made: list[Any] = [None] * len(self.indices)
        self._batch: np.ndarray[Any, Any] | None = None
        self._writes_rows = stack is elements.stacked
        self._lock = threading.Lock()

    def pieces(self) -> list[range]:
        """The places of the batch in pieces of work."""
        count = len(self.indices)
        return [range(i, min(i + PIECE, count)) for i in range(0, count, PIECE)]

    def fill(self, places: range) -> None:
        """Makes the samples of some places."""
        written = self._write(places)
        for place in places:
            if place in written:
                continue
            made = self._make(int(self.indices[place]))
            if self._writes_rows and isinstance(made, np.ndarray):
                made = self._put(place, made)
            self._made[place] = made

    def _write(self, places: range) -> set[int]:
        """The places whose samples the writer has made."""
        if self._writer is None or not self._writes_rows or not places:
            return set()
        batch = self._allocated(self._writer.shape, self._writer.dtype)
        files = self._files[places.start : places.stop]
        done = self._writer.write(files, batch[places.start : places.stop])
        written = {place for place, is_there in zip(places, done, strict=True) if is_there}
        for place in written:
            self._made[place] = batch[place]
        return written

    def _allocated(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """The batch, which is made for the first sample."""
        if self._batch is None:
            with self._lock:
                if self._batch is None:
                    self._batch = _reused((len(self._made), *shape), np.dtype(dtype))
        return self._batch

    def _put(self, place: int, made: np.ndarray[Any, Any]) -> Any:
        row = self._allocated(made.shape, made.dtype)[place]
        if row.shape != made.shape or row.dtype != made.dtype:
            return made  # `stack` has the words for that
        row[...] = made
        return row

    def finish(self) -> tuple[Any, np.ndarray[Any, Any]]:
        """The batch and the numbers of its samples, without those that are left out.

        Without any the batch is None.
        """
        kept = [place for place, made in enumerate(self._made) if made is not None]
        made = [self._made[place] for place in kept]
        if not kept:
            return None, self.indices[:0]
        if self._batch is None or any(getattr(m, "base", None) is not self._batch for m in made):
            return self._stack(made), self.indices[kept]
        if len(kept) == len(self._made):
            return self._batch, self.indices
        return self._batch[kept], self.indices[kept]


def _reused(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array whose memory an earlier batch had, if there is one that nobody has any more.

    Memory fresh from the system would be cleared page by page: for an image of 224 x 224 pixels in
    float32 that takes a sixth of the time to read, decode and resize it.
    """
    if dtype.name in dtypes.ALL and dtype == dtypes.numpy_dtype(dtype.name):
        return _core.empty(list(shape), dtype.name, "cpu").numpy()
    return np.empty(shape, dtype)
