"""Sequences of different lengths, and windows of a long one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn.data.cardinality import check_size
from kerascnn.data.dataset import Dataset
from kerascnn.data.indexed import IndexedDataset
from kerascnn.utils.directory import check_format


def pad_sequences(
    sequences: Sequence[Any],
    maxlen: int | None = None,
    dtype: Any = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: Any = 0.0,
) -> np.ndarray:
    """Pads or cuts sequences of different lengths to one length, and returns one array.

    Args:
        sequences: Lists or arrays; items of one shape.
        maxlen: The length, by default that of the longest sequence.
        dtype: Of the array; `object` for text.
        padding: "pre" to fill up at the beginning, "post" at the end.
        truncating: "pre" to cut at the beginning what is too long, "post" at the end.
        value: What to fill up with.

    Returns:
        An array of shape `(len(sequences), maxlen, ...)`.

    Raises:
        ValueError: for anything but sequences, items of different shapes, an unknown side, and
            text as `value` for a `dtype` of numbers.

    Example:

    >>> import kerascnn as keras
    >>> keras.utils.pad_sequences([[1], [2, 3], [4, 5, 6]], maxlen=2).tolist()
    [[0, 1], [2, 3], [5, 6]]
    """
    if not hasattr(sequences, "__len__"):
        raise ValueError(f"`sequences` must be a list. Received: {type(sequences).__name__}")
    for name, side in (("padding", padding), ("truncating", truncating)):
        if side not in ("pre", "post"):
            raise ValueError(f'`{name}` must be "pre" or "post". Received: {name}={side!r}')
    for sequence in sequences:
        if not hasattr(sequence, "__len__"):
            raise ValueError(
                f"`sequences` must be a list of sequences. Received an item: {sequence}"
            )
    is_text = dtype is object or np.issubdtype(dtype, np.str_) or np.issubdtype(dtype, np.bytes_)
    if isinstance(value, str) and not is_text:
        raise ValueError(
            f"`dtype` {dtype} cannot hold `value`={value!r}: pass dtype=object for text."
        )
    shape = next((np.asarray(s).shape[1:] for s in sequences if len(s)), ())
    length = max((len(s) for s in sequences), default=0) if maxlen is None else maxlen
    result = np.full((len(sequences), length, *shape), value, dtype)
    for place, sequence in enumerate(sequences):
        kept = sequence[-length:] if truncating == "pre" else sequence[:length]
        if not len(kept) or not length:
            continue
        items = np.asarray(kept, dtype)
        if items.shape[1:] != shape:
            raise ValueError(
                f"The items of sequence {place} have shape {items.shape[1:]}, those of the first "
                f"one {shape}."
            )
        filled = slice(-len(items), None) if padding == "pre" else slice(len(items))
        result[place, filled] = items
    return result


class _Windows:
    """Windows of a series, with the targets of their first steps.

    Args:
        data: The series, steps first.
        targets: An array, or None.
        starts: Where windows begin.
        offsets: Which steps after that they have.
    """

    def __init__(self, data: Any, targets: Any, starts: np.ndarray, offsets: np.ndarray):
        self._data, self._targets = data, targets
        self._starts, self._offsets = starts, offsets

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Any:
        start = self._starts[index]
        window = self._data[start + self._offsets]
        return window if self._targets is None else (window, self._targets[start])

    def gather(self, indices: np.ndarray) -> Any:
        """Returns several windows as a batch."""
        starts = self._starts[indices]
        windows = self._data[starts[:, None] + self._offsets]
        return windows if self._targets is None else (windows, self._targets[starts])


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "tf",
) -> Dataset:
    """Windows of a series as a data set.

    Args:
        data: An array with an axis of steps in front.
        targets: An array whose item i belongs to the window that begins at step i, counted from
            `start_index`; or None for windows only.
        sequence_length: How many steps a window has.
        sequence_stride: How many steps lie between the beginnings of two windows.
        sampling_rate: How many steps lie between two of a window.
        batch_size: How many windows a batch has; None for single windows.
        shuffle: Whether each pass has another order.
        seed: Of the orders.
        start_index: Steps before this one are left out.
        end_index: Steps from this one on are left out.
        format: "tf" or "grain", without effect.

    Returns:
        A `keras.data.Dataset` of windows, or pairs of them and their targets.

    Raises:
        ValueError: for indices, strides and rates that are out of range.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> x = np.arange(6)
    >>> dataset = keras.utils.timeseries_dataset_from_array(x[:-2], x[2:], sequence_length=2)
    >>> windows, targets = next(iter(dataset))
    >>> windows.tolist(), targets.tolist()
    ([[0, 1], [1, 2], [2, 3]], [2, 3, 4])
    """
    check_format(format)
    _check_range(len(data), start_index, end_index)
    for name, value in (("sampling_rate", sampling_rate), ("sequence_stride", sequence_stride)):
        if not 0 < value < len(data):
            raise ValueError(
                f"`{name}` must be higher than 0 and lower than the length of the data, "
                f"{len(data)}. Received: {name}={value}"
            )
    check_size("sequence_length", sequence_length)
    start, end = start_index or 0, len(data) if end_index is None else end_index
    count = end - start - (sequence_length - 1) * sampling_rate
    part = np.asarray(data[start:end])
    part_of_targets = None
    if targets is not None:
        count = min(count, len(targets))
        part_of_targets = np.asarray(targets[start:end])
        if len(part_of_targets) < count:
            raise ValueError(
                f"There are {count} windows from `start_index`={start} on, but only "
                f"{len(part_of_targets)} targets."
            )
    starts = np.arange(0, max(count, 0), sequence_stride)
    if shuffle:
        if seed is None:
            seed = int(np.random.randint(10**6))  # noqa: NPY002 (what set_random_seed fixes)
        np.random.RandomState(seed).shuffle(starts)  # this gives Keras' order
    offsets = np.arange(0, sequence_length * sampling_rate, sampling_rate)
    windows = _Windows(part, part_of_targets, starts, offsets)
    return IndexedDataset(windows, batch_size, shuffle, seed)


def _check_range(length: int, start: int | None, end: int | None) -> None:
    if start is not None and not 0 <= start < length:
        raise ValueError(
            f"`start_index` must be from 0 to the length of the data, {length}. Received: "
            f"start_index={start}"
        )
    if end is not None and not (start or 0) < end < length:
        raise ValueError(
            "`end_index` must be higher than `start_index` and lower than the length of the data, "
            f"{length}. Received: start_index={start}, end_index={end}"
        )
