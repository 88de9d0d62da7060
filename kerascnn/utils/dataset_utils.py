"""Splits a data set in two parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn.data import Dataset, elements
from kerascnn.data.indexed import IndexedDataset
from kerascnn.utils.py_dataset import PyDataset


class SampleDataset(IndexedDataset):
    """Some samples of a data set: has a length, gives samples by index and batches for `fit`.

    Args:
        source: a tuple of arrays with one axis of samples, or anything with `source[index]`.
        indices: which of its samples, shape `(num_samples,)`.
    """

    def __init__(self, source: Any, indices: np.ndarray):
        super().__init__(_ChosenSamples(source, indices))


class _ChosenSamples:
    def __init__(self, source: Any, indices: np.ndarray):
        self._source = source
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Any:
        at = int(self._indices[index])
        if isinstance(self._source, tuple):
            return tuple(array[at] for array in self._source)
        return self._source[at]

    def gather(self, indices: np.ndarray) -> Any:
        """Several samples, stacked."""
        if isinstance(self._source, tuple):
            return tuple(array[self._indices[indices]] for array in self._source)
        batch = elements.stacked([self[int(index)] for index in indices])
        return batch if isinstance(batch, (tuple, dict)) else (batch,)


def split_dataset(
    dataset: Any,
    left_size: float | int | None = None,
    right_size: float | int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> tuple[SampleDataset, SampleDataset]:
    """Splits a data set into a left and a right part, for training and validation say.

    Args:
        dataset: an array, a list or tuple of arrays of one length, or a data set with a length that
            gives samples by index, such as a `torch.utils.data.Dataset`. The elements of a
            `keras.data.Dataset`, which are then kept in memory, are its samples: `unbatch` one
            that has batches.
        left_size: samples of the left part, a number of them or a share from 0 to 1; by default
            those that the right part leaves.
        right_size: the same for the right part.
        shuffle: whether samples are put into a random order before.
        seed: of that order.
        preferred_backend: kept for Keras' signature.

    Returns:
        Two data sets of samples; `batch(size)` makes batches of one that `fit` takes.

    Raises:
        TypeError: for another kind of data set, or sizes that are no numbers.
        ValueError: for sizes that are out of range, or arrays of different lengths.

    Example:

    >>> x, y = np.arange(10.0), np.arange(10)
    >>> left, right = keras.utils.split_dataset((x, y), left_size=0.8)
    >>> len(left), len(right)
    (8, 2)
    >>> [batch[1].tolist() for batch in left.batch(5)]
    [[0, 1, 2, 3, 4], [5, 6, 7]]
    """
    source, total = _samples_of(dataset)
    left, right = _sizes(left_size, right_size, total)
    order = np.arange(total)
    if shuffle:
        order = np.random.default_rng(seed).permutation(total)
    return SampleDataset(source, order[:left]), SampleDataset(source, order[total - right :])


def _samples_of(dataset: Any) -> tuple[Any, int]:
    if isinstance(dataset, np.ndarray):
        dataset = (dataset,)
    if isinstance(dataset, (list, tuple)):
        arrays: Sequence[Any] = dataset
        if not arrays or not all(isinstance(array, np.ndarray) for array in arrays):
            found = [type(array).__name__ for array in arrays]
            kind = ValueError if isinstance(dataset, list) else TypeError
            raise kind(f"`dataset` must be a list or tuple of NumPy arrays. Received: {found}")
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) != 1:
            raise ValueError(
                f"The arrays of `dataset` must have the same length. Received: {lengths}"
            )
        return tuple(arrays), lengths[0]
    if isinstance(dataset, Dataset):
        dataset = list(dataset)  # a shuffled data set has another order in each pass
        return dataset, len(dataset)
    gives_samples = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if gives_samples and not isinstance(dataset, (str, bytes, dict, PyDataset)):
        return dataset, len(dataset)
    raise TypeError(
        "`dataset` must be an array, a list or tuple of arrays, or a data set that gives samples "
        f"by index. Received: {type(dataset).__name__}"
    )


def _sizes(left: Any, right: Any, total: int) -> tuple[int, int]:
    if left is None and right is None:
        raise ValueError("At least one of `left_size` and `right_size` must be given.")
    for name, size in (("left_size", left), ("right_size", right)):
        if size is None:
            continue
        if type(size) not in (int, float):
            raise TypeError(
                f"`{name}` must be an integer, a float or None. Received: {type(size).__name__}"
            )
        if not 0 < size < (1 if isinstance(size, float) else total):
            raise ValueError(
                f"`{name}` must be an integer from 1 to {total - 1} or a float between 0 and 1. "
                f"Received: {name}={size}"
            )
    if isinstance(left, float) and isinstance(right, float) and left + right > 1:
        raise ValueError(
            f"The sum of `left_size` and `right_size` is greater than 1: {left} + {right}"
        )
    counts = [round(s * total) if isinstance(s, float) else s for s in (left, right)]
    left_count = total - counts[1] if counts[0] is None else counts[0]
    right_count = total - counts[0] if counts[1] is None else counts[1]
    if left_count + right_count > total:
        raise ValueError(
            f"`left_size` and `right_size` ask for {left_count} + {right_count} samples of {total}."
        )
    for name, count in (("left", left_count), ("right", right_count)):
        if count == 0:
            raise ValueError(f"With {total} samples the {name} part would be empty.")
    return left_count, right_count
