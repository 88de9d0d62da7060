"""Elements of data sets: arrays on the host, nested in tuples and dictionaries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes, trees
from kerascnn.ops import dispatch


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """The shape and the dtype of one array of an element.

    Attributes:
        shape: Sizes; None where they can differ from one element to the next.
        dtype: The name of a dtype, "string" for text.

    Example:

    >>> import kerascnn as keras
    >>> dataset = keras.data.Dataset.from_tensor_slices([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> dataset.element_spec
    TensorSpec(shape=(2,), dtype='float32')
    >>> dataset.batch(2).element_spec  # the last batch may be shorter
    TensorSpec(shape=(None, 2), dtype='float32')
    """

    shape: tuple[int | None, ...]
    dtype: str


class ElementArray(np.ndarray[Any, Any]):
    """An array as iterating over a data set hands it out: NumPy's, with the method `numpy`.

    Scripts that were written for `tf.data` call it: `images[0].numpy().astype("uint8")` and
    `labels[0].numpy()`, so single numbers are arrays of shape () here.
    """

    def numpy(self) -> np.ndarray[Any, Any]:
        """The same numbers, without a copy, as NumPy's own class."""
        return self.view(np.ndarray)

    def __getitem__(self, key: Any) -> Any:
        return _with_numpy(super().__getitem__(key))

    def __hash__(self) -> int:  # type: ignore[override]  # NumPy's arrays have none
        if self.ndim:
            raise TypeError(f"an array of shape {self.shape} cannot be a key; a single number can")
        return hash(self.item())

    def __repr__(self) -> str:
        return repr(self.numpy())


def _with_numpy(leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        return np.asarray(leaf).view(ElementArray)
    return leaf.view(ElementArray) if type(leaf) is np.ndarray else leaf


def handed_out(element: Any) -> Any:
    """An element as a program gets it that iterates over a data set."""
    return trees.map_structure(_with_numpy, element)


def as_array(value: Any) -> Any:
    """An array of what a user gave as one: text as Python's strings, numbers as Keras takes them.

    Raises:
        TypeError: for lists of unequal length and things that are no numbers or text.
    """
    if dispatch.is_tensor(value):
        return np.asarray(value)
    array = value if isinstance(value, np.ndarray) else _array_of_list(value)
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype.kind == "O" and not all(isinstance(x, (str, bytes)) for x in array.flat):
        raise TypeError(
            "The items of a data set must be numbers or text of equal shapes. Received an array "
            f"of objects of type {type(next(iter(array.flat))).__name__}, shape {array.shape}. "
            "For sequences of different lengths use `keras.utils.pad_sequences`, or "
            "`Dataset.from_generator` and `padded_batch`."
        )
    return array


def as_arrays(structure: Any) -> Any:
    """The same for lists and arrays that are nested in tuples and dictionaries."""
    if isinstance(structure, dict):
        return {key: as_arrays(value) for key, value in structure.items()}
    if isinstance(structure, tuple):
        items = [as_arrays(item) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else tuple(items)
    return as_array(structure)


def _array_of_list(value: Any) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(len(value), object)
        array[:] = list(value)
    known = hasattr(value, "dtype") or array.dtype.kind not in "if"
    return array if known else dispatch.to_numpy_array(array.tolist())


def spec_of(element: Any) -> Any:
    """Returns what is known of the elements that look like one: a structure of `TensorSpec`."""
    return trees.map_structure(_spec_of_leaf, element)


def _spec_of_leaf(leaf: Any) -> TensorSpec:
    if isinstance(leaf, (str, bytes)):
        return TensorSpec((), "string")
    if not hasattr(leaf, "shape"):
        leaf = as_array(leaf)
    kind = getattr(leaf.dtype, "kind", "")
    dtype = "string" if kind in ("O", "U", "S") else dtypes.standardize_dtype(leaf.dtype)
    return TensorSpec(tuple(leaf.shape), dtype)


def with_leading(spec: Any, size: int | None) -> Any:
    """The spec of batches of such elements."""
    return trees.map_structure(lambda leaf: TensorSpec((size, *leaf.shape), leaf.dtype), spec)


def without_leading(spec: Any) -> Any:
    """The spec of what such elements are batches of."""
    return trees.map_structure(lambda leaf: TensorSpec(leaf.shape[1:], leaf.dtype), spec)


def merged(one: Any, other: Any) -> Any:
    """Returns what is known of elements that may look like one or the other."""

    def merge(a: Any, b: Any) -> TensorSpec:
        pairs = zip(a.shape, b.shape, strict=True)
        return TensorSpec(tuple(x if x == y else None for x, y in pairs), a.dtype)

    return trees.map_structure(merge, one, other)


def call(function: Callable[..., Any], element: Any) -> Any:
    """A function of an element, whose parts are its arguments where it is a tuple."""
    return function(*element) if isinstance(element, tuple) else function(element)


def stacked(elements: Sequence[Any], join: Callable[[list[Any]], Any] | None = None) -> Any:
    """Elements of one structure as a batch.

    Raises:
        ValueError: for shapes or structures that differ.
    """
    first = elements[0]
    if isinstance(first, dict):
        return {key: stacked([x[key] for x in elements], join) for key in first}
    if isinstance(first, (tuple, list)):
        columns = zip(*elements, strict=True)
        return tuple(stacked(column, join) for column in columns)
    return (join or _stack)(list(elements))


def _stack(leaves: list[Any]) -> Any:
    if isinstance(leaves[0], (str, bytes)):
        return np.array(leaves, dtype=object)
    if not hasattr(leaves[0], "shape"):
        return as_array(leaves)
    arrays = [np.asarray(leaf) for leaf in leaves]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            "The elements of a batch must have equal shapes. Received: "
            f"{', '.join(map(str, sorted(shapes)))}. `padded_batch` makes them equal."
        )
    return np.stack(arrays)


def padded(elements: Sequence[Any], shapes: Any, values: Any) -> Any:
    """Elements of one structure as a batch, filled up at the ends of their axes.

    Args:
        elements: Arrays, or tuples and dictionaries of them. All arrays of a place have one rank.
        shapes: The size of each axis, None or -1 for the largest one that there is; None for all
            axes; or a structure of these.
        values: What arrays are filled up with, None for 0 or empty text; or a structure of these.

    Raises:
        ValueError: for an array that is larger than its shape.
    """
    first = elements[0]
    if isinstance(first, dict):
        return {
            key: padded([x[key] for x in elements], _part(shapes, key), _part(values, key))
            for key in first
        }
    if isinstance(first, (tuple, list)):
        columns = zip(*elements, strict=True)
        return tuple(
            padded(column, _part(shapes, i), _part(values, i)) for i, column in enumerate(columns)
        )
    return _padded(elements, shapes, values)


def _part(structure: Any, key: Any) -> Any:
    """Returns one part of a structure, or the value that holds for all parts."""
    return structure[key] if isinstance(structure, (dict, tuple, list)) else structure


def _padded(leaves: Sequence[Any], shape: Any, value: Any) -> Any:
    arrays = [
        np.asarray(leaf, object) if isinstance(leaf, str) else np.asarray(leaf) for leaf in leaves
    ]
    largest = np.max([array.shape for array in arrays], axis=0, initial=0).astype(int).tolist()
    wanted = list(shape) if shape is not None else [None] * len(largest)
    if len(wanted) != len(largest):
        raise ValueError(
            f"`padded_shapes` must have a size for each of the {len(largest)} axes. Received: "
            f"{shape}"
        )
    sizes = [most if w in (None, -1) else int(w) for w, most in zip(wanted, largest, strict=True)]
    if any(most > size for most, size in zip(largest, sizes, strict=True)):
        raise ValueError(f"An element is larger than `padded_shapes`: {largest}, {sizes}")
    is_text = arrays[0].dtype.kind in "OUS"
    fill = ("" if is_text else 0) if value is None else value
    result = np.full([len(arrays), *sizes], fill, object if is_text else arrays[0].dtype)
    for row, array in zip(result, arrays, strict=False):
        if array.ndim:
            row[tuple(slice(size) for size in array.shape)] = array
    return np.stack(arrays) if not largest else result


def rows(element: Any) -> Iterator[Any]:
    """The elements of a batch one by one.

    Raises:
        ValueError: for arrays without an axis of samples, or of different lengths.
    """
    leaves = trees.flatten(element)
    if not all(getattr(leaf, "shape", ()) for leaf in leaves):
        raise ValueError("`unbatch` needs elements with an axis of samples: these have none.")
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) != 1:
        raise ValueError(f"The parts of a batch have different lengths: {sorted(lengths)}")
    for i in range(lengths.pop()):
        yield trees.map_structure(lambda leaf, i=i: leaf[i], element)
