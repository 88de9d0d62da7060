"""Batches with a form that was checked before: only what may differ is checked again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kerascnn import _core, trees
from kerascnn.data.elements import ElementArray
from kerascnn.interchange import is_on_gpu
from kerascnn.training.data import ArrayData, import_array

_INT32 = np.iinfo(np.int32)
_least, _greatest = np.minimum.reduce, np.maximum.reduce


# As unsigned numbers, negative ones exceed every class number, so one comparison finds both.
_UNSIGNED = {"int8": np.uint8, "int16": np.uint16, "int32": np.uint32, "int64": np.uint64}


class LabelRange(NamedTuple):
    """The class numbers among a batch's arrays, and their valid range."""

    place: int
    low: int
    high: int
    unsigned: Any = None  # the unsigned dtype, if one comparison is enough

    @classmethod
    def of_classes(cls, place: int, array: np.ndarray, classes: int) -> LabelRange:
        unsigned = _UNSIGNED.get(array.dtype.name) if array.dtype.isnative else None
        if classes > np.iinfo(np.int8).max:  # there may be more classes than numbers of the dtype
            unsigned = None if array.dtype.itemsize == 1 else unsigned
        return cls(place, 0, classes - 1, unsigned)

    def holds(self, labels: np.ndarray) -> bool:
        """Tells whether all class numbers are valid."""
        if self.unsigned is not None:
            return bool(_greatest(labels.view(self.unsigned), axis=None) <= self.high)
        least, greatest = _least(labels, axis=None), _greatest(labels, axis=None)
        return bool(least >= self.low and greatest <= self.high)


class BatchForm:
    """How batches of one form become what a step takes.

    Args:
        places: for each array of the step which of the batch's it is; `None` where they are the
            same in the same order.
        ranges: class numbers to look at.
        route: where such batches go.
    """

    def __init__(self, places: list[int] | None, ranges: list[LabelRange], route: Any):
        self._places = places
        self._ranges = ranges
        self.route = route

    def arrays_of(self, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
        """The arrays for the step, in the dtypes that they have; `None` for a batch that has to be
        checked in full: what is wrong with it, or how else it fits, is found out there."""
        for labels in self._ranges:
            if not labels.holds(arrays[labels.place]):
                return None
        return arrays if self._places is None else [arrays[place] for place in self._places]


def look_at(parts: tuple) -> tuple[list[np.ndarray], Any] | None:
    """The arrays of a batch, and what says all about its form; `None` where it has no such.

    Two batches with equal second results differ only in the numbers that they hold.

    Args:
        parts: `(x,)`, `(x, y)` or `(x, y, sample_weight)`.
    """
    if len(parts) == 2:
        x, y = parts
        x = x if type(x) is np.ndarray else _plain_array(x)
        y = y if type(y) is np.ndarray else _plain_array(y)
        if x is not None and y is not None and x is not y:
            return [x, y], (x.shape, x.dtype, y.shape, y.dtype)
    arrays = []
    for leaf in trees.leaves(parts):
        if leaf is None:
            continue
        array = _plain_array(leaf)
        if array is None:
            return None
        arrays.append(array)
    return arrays, _signature(_outline(parts), arrays)


def _signature(outline: Any, arrays: list[np.ndarray]) -> Any:
    first = {id(array): place for place, array in reversed(list(enumerate(arrays)))}
    same = tuple(first[id(array)] for array in arrays)
    return outline, same, tuple((array.shape, array.dtype) for array in arrays)


def _plain_array(leaf: Any) -> np.ndarray | None:
    """Returns an array as NumPy's; None for a structure, and for what needs a full check."""
    kind = type(leaf)
    if kind is np.ndarray:
        return leaf
    if kind is ElementArray:
        return leaf.numpy()
    if kind is _core.Tensor:
        return leaf.numpy() if leaf.device == "cpu" else None
    if kind.__module__ != "torch" or is_on_gpu(leaf):
        return None
    try:
        return import_array(leaf)
    except (TypeError, ValueError, RuntimeError):
        return None  # the full check will say what is wrong


def _outline(part: Any) -> Any:
    """Returns the structure of a batch as a possible key."""
    if isinstance(part, dict):
        return dict, tuple((key, _outline(part[key])) for key in part)
    if isinstance(part, (list, tuple)):
        return type(part), tuple(_outline(item) for item in part)
    return part is None


def form_of(
    arrays: list[np.ndarray], data: ArrayData, limits: dict[int, int | None], route: Any
) -> BatchForm | None:
    """The form of a batch that was read in full; `None` where each one has to be read so.

    Args:
        arrays: the batch's arrays as they came, from `look_at`.
        data: the same, read.
        limits: for arrays of class numbers, by the `id` of the read ones, how many classes there
            are, or `None` where more than that has to be looked at.
        route: where such batches go.
    """
    given: dict[int, tuple[int, np.ndarray]] = {}
    for place, (read, array) in enumerate(zip(data.arrays(), arrays, strict=False)):
        given.setdefault(id(read), (place, array))
    targets = {id(leaf) for leaf in trees.leaves(data.y)}
    places, ranges = [], []
    for read in data.unique_arrays():
        classes = limits.get(id(read), 0)
        if id(read) not in given or classes is None:
            return None
        place, array = given[id(read)]
        is_wide = array.dtype.kind in "iu" and array.dtype.itemsize > 2
        # For these arrays, the values decide whether they keep their width.
        depends = array.dtype.name == "uint64" or (id(read) in targets and read.dtype == np.int64)
        if array.shape != read.shape or (is_wide and depends):
            return None
        places.append(place)
        if classes and read.size:
            ranges.append(LabelRange.of_classes(place, array, classes))
        elif is_wide and read.dtype != array.dtype and read.size:
            ranges.append(LabelRange(place, int(_INT32.min), int(_INT32.max)))
    in_order = places == list(range(len(arrays)))
    return BatchForm(None if in_order else places, ranges, route)
