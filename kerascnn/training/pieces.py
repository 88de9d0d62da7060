"""Arrays that are used once go to a GPU in pieces, while it works on earlier pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerascnn import _core
from kerascnn.training.chunks import host_memory
from kerascnn.training.data import ArrayData
from kerascnn.training.device_arrays import Array
from kerascnn.training.memory import piece_batches


class Piece(NamedTuple):
    """Some consecutive batches, and their place on the device."""

    batch: int  # the first batch
    length: int  # whole batches; 0 for the last, shorter one
    place: int  # the place of the first one, in batches


class Layout(NamedTuple):
    """Which pieces data goes in.

    Args:
        batches: whole batches.
        rest: samples of the last, shorter batch.
        batch_size: samples of a whole batch.
        half: batches in half of the places.
    """

    batches: int
    rest: int
    batch_size: int
    half: int

    @classmethod
    def of(cls, data: ArrayData, batch_size: int) -> Layout:
        batches, rest = divmod(data.num_samples, batch_size)
        per_batch = sum(array[:1].nbytes for array in data.unique_arrays()) * batch_size
        return cls(batches, rest, batch_size, piece_batches(per_batch, max(1, batches)))

    @property
    def places(self) -> int:
        """Returns for how many batches there is room: those of two pieces."""
        return 2 * self.half

    def pieces(self) -> list[Piece]:
        """The first ones are smaller, so that steps start early; none goes over the end.

        Each costs a launch, between which steps don't overlap: they grow fast.
        """
        result: list[Piece] = []
        batch, size = 0, max(1, self.half // 8)
        while batch < self.batches:
            left = self.batches - batch
            most = min(self.half, self.places - batch % self.places)
            if size < left <= size + size // 2:
                size = left  # avoids a small piece at the end
            count = min(size, left, most)
            result.append(Piece(batch, count, batch % self.places))
            batch += count
            size = min(3 * size, max(size, 3 * self.half // 4)) if batch < self.half else self.half
        if self.rest:
            result.append(Piece(batch, 0, batch % self.places))
        return result


class Places:
    """Room on a device for the rows of two pieces, and as much in page-locked memory before it.

    Args:
        arrays: what there will be rows of.
        layout: how many.
        device: the device.

    Attributes:
        key: what the places are for.
        tensors: the memory on the device, one tensor for each array.
    """

    def __init__(self, arrays: Sequence[Array], layout: Layout, device: str):
        self.key = self.key_for(arrays, layout)
        rows = layout.places * layout.batch_size
        specs = [((rows, *array.shape[1:]), array.dtype.name) for array in arrays]
        self.tensors = [_core.empty(list(shape), dtype, device) for shape, dtype in specs]
        sources = [host_memory(shape, dtype, device) for shape, dtype in specs]
        self.upload = _core.PieceUpload(device, self.tensors, sources)

    @staticmethod
    def key_for(arrays: Sequence[Array], layout: Layout) -> tuple:
        """Returns the `key` of places for such pieces of such arrays."""
        rows = layout.places * layout.batch_size
        return rows, tuple((array.shape[1:], array.dtype) for array in arrays)


class Pieces:
    """The pieces of one pass over data, of which several are on their way at a time.

    Args:
        data: the arrays.
        layout: which pieces they go in.
        places: where they go; nobody else uses them until `close`.
    """

    def __init__(self, data: ArrayData, layout: Layout, places: Places):
        self.layout = layout
        self.places = places
        self._arrays = data.unique_arrays()
        self._pieces = layout.pieces()
        self._started = 0
        self._released = 0  # pieces whose steps are enqueued
        self.start()

    def start(self) -> None:
        """Starts all pieces for which there is room."""
        while self._started < len(self._pieces):
            piece = self._pieces[self._started]
            oldest = self._pieces[self._released] if self._released < self._started else piece
            if piece.batch + max(1, piece.length) - oldest.batch > self.layout.places:
                return
            self._start(piece)
            self._started += 1

    def _start(self, piece: Piece) -> None:
        size = self.layout.batch_size
        first = piece.batch * size
        count = piece.length * size or self.layout.rest
        rows = [np.ascontiguousarray(array[first : first + count]) for array in self._arrays]
        self.places.upload.start(rows, piece.place * size)

    def arrive(self) -> None:
        """Lets later steps read the rows of the next piece."""
        self.places.upload.arrive()

    def release(self) -> None:
        """Notes that the steps of the last arrived piece are enqueued."""
        self.places.upload.mark_used()
        self._released += 1
        self.start()

    def close(self) -> None:
        """Gives up what has not arrived: nothing reads the arrays any more."""
        self.places.upload.cancel()
        self._started = self._released = len(self._pieces)

    def __iter__(self) -> Any:
        return iter(self._pieces)
