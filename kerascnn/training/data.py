"""Arrays as `fit` takes them, on the host or a GPU: conversion, checks, splitting, weights."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from kerascnn import _core, config, dtypes, tables, trees
from kerascnn.interchange import shares_memory
from kerascnn.layers.text import is_text
from kerascnn.training.device_arrays import Array, DeviceArray, device_array
from kerascnn.trees import is_nested
from kerascnn.utils.batch_parts import pack_x_y_sample_weight

# The device has no wider unsigned integers: each becomes the next type that can hold it.
_UNSIGNED = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}
# Arrays of these types are used without a look at values or settings.
_USED_AS_IS = frozenset(map(np.dtype, ("bool", "uint8", "int8", "int16", "int32", "int64")))
# All values of these types fit into int32.
_NARROW = frozenset(map(np.dtype, ("uint8", "int8", "int16", "int32")))
# No model has more inputs or outputs than this, as a rule.
_MANY = 8
_ABOUT_TEXT = (
    " Text becomes numbers by a TextVectorization or StringLookup layer: map it over the data set "
    "first, or put it at the beginning of a functional or Sequential model."
)


class ArrayData:
    """`x`, `y` and `sample_weight` with one array per leaf, as a rule of the same length.

    Args:
        x: array, or list, tuple or dictionary of arrays, each of shape `(num_samples, ...)`.
        y: the same for targets, or `None`.
        sample_weight: weights of shape `(num_samples,)` or one for each of `y`, or `None`.
        one_length: whether all have to have as many samples; else those of `x` are counted.

    Raises:
        TypeError: for strings, objects and other things that don't hold numbers.
        ValueError: for different lengths, no samples at all, or wrong shapes of the weights.
    """

    def __init__(self, x: Any, y: Any = None, sample_weight: Any = None, one_length: bool = True):
        if x is None:
            raise ValueError("No input data: x is None. Pass an array of shape (num_samples, ...).")
        self.x = _as_arrays(x, "x")
        self.y = None if y is None else _compact_labels(_as_arrays(y, "y"))
        self.sample_weight = None
        if sample_weight is not None:
            self.sample_weight = _spread_weights(_as_arrays(sample_weight, "sample_weight"), self.y)
        self.num_samples = self._check_lengths(one_length)
        if self.sample_weight is not None:
            _check_weights(self.sample_weight, self.y)

    @property
    def structure(self) -> tuple:
        """Returns `(x, y, sample_weight)`, nested as given."""
        return self.x, self.y, self.sample_weight

    @property
    def packed(self) -> Any:
        """What a step gets: `x`, `(x, y)` or `(x, y, sample_weight)`, without absent ends."""
        return pack_x_y_sample_weight(*self.structure)

    def settle(self, device: str) -> None:
        """Moves data from another GPU to the device of the steps, which may be a CPU."""
        moved: dict[int, Any] = {}

        def move(leaf: Any) -> Any:
            if not isinstance(leaf, DeviceArray):
                return leaf
            if id(leaf) not in moved:
                moved[id(leaf)] = leaf.on(device)
            return moved[id(leaf)]

        self.x, self.y, self.sample_weight = trees.map_structure(move, self.structure)

    def unique_arrays(self) -> list[Array]:
        """Returns the arrays, those that occur several times only once."""
        return list({id(array): array for array in self.arrays()}.values())

    def arrays(self) -> list[Array]:
        """Returns all arrays from left to right, without absent ones."""
        return [leaf for leaf in trees.flatten(self.structure) if leaf is not None]

    @property
    def host_bytes(self) -> int:
        """Returns the bytes that have to go to a device."""
        return sum(a.nbytes for a in self.unique_arrays() if isinstance(a, np.ndarray))

    @property
    def is_on_device(self) -> bool:
        """Tells whether some of it is on the device already."""
        return any(isinstance(array, DeviceArray) for array in self.arrays())

    def _check_lengths(self, one_length: bool) -> int:
        x, y = self.x, self.y
        # this is the usual case and fast
        if type(x) is np.ndarray and len(x) and self.sample_weight is None:
            is_alone = y is None
            if is_alone or (type(y) is np.ndarray and len(y) == len(x)):
                return len(x)
        sizes = {
            name: [len(leaf) for leaf in trees.flatten(part) if leaf is not None]
            for name, part in zip(("x", "y", "sample_weight"), self.structure, strict=True)
        }
        lengths = {length for of_part in sizes.values() for length in of_part}
        if not one_length:
            lengths = {0} if 0 in lengths else set(sizes["x"][:1])
        if len(lengths) != 1:
            raise ValueError(
                "All arrays must have the same number of samples (their first axis). Received "
                + ", ".join(_shown_lengths(*part) for part in sizes.items() if part[1])
                + "."
                + "".join(_stack_hint(name, len(part)) for name, part in sizes.items())
            )
        (num_samples,) = lengths
        if num_samples == 0:
            shapes = ", ".join(str(a.shape) for a in trees.flatten(self.x))
            raise ValueError(f"There are no samples in the data: x has shape {shapes}.")
        return num_samples

    def split(self, fraction: float) -> tuple[ArrayData, ArrayData]:
        """The first part for training and the last `fraction` for validation, in this order."""
        check_validation_split(fraction)
        at = math.floor(self.num_samples * (1.0 - fraction))
        if at in (0, self.num_samples):
            raise ValueError(
                f"validation_split={fraction} of {self.num_samples} samples leaves nothing for "
                f"{'training' if at == 0 else 'validation'}. Provide more data or another fraction."
            )
        return self._slice(slice(0, at)), self._slice(slice(at, None))

    def _slice(self, which: slice) -> ArrayData:
        part = object.__new__(ArrayData)
        part.x, part.y, part.sample_weight = trees.map_structure(
            lambda leaf: None if leaf is None else leaf[which], self.structure
        )
        part.num_samples = len(trees.flatten(part.x)[0])
        return part

    def copy(self) -> ArrayData:
        """Returns the same samples in memory of their own."""
        part = self._slice(slice(None))
        part.x, part.y, part.sample_weight = trees.map_structure(
            lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf, part.structure
        )
        return part

    def weigh_classes(self, class_weight: dict) -> None:
        """Converts `class_weight` to sample weights. Raises `ValueError` if that is impossible."""
        check_class_weight(class_weight)
        if self.sample_weight is not None:
            raise ValueError(
                "class_weight and sample_weight can't both be given: multiply the weight of each "
                "sample's class into sample_weight."
            )
        if self.y is None or is_nested(self.y):
            raise ValueError("class_weight is only supported for models with a single output.")
        self.sample_weight = class_weights_of(self.y, class_weight)


def class_weights_of(y: Array, class_weight: dict) -> np.ndarray:
    """Returns the weight of each sample's class, (num_samples,); 1 for unlisted classes."""
    y = np.asarray(y)
    if y.ndim > 1:
        y = np.argmax(y, axis=-1) if y.shape[-1] != 1 else y[..., 0]
    labels = np.round(y).astype(np.int64)
    classes, places = np.unique(labels, return_inverse=True)
    weights = [float(class_weight.get(int(label), 1.0)) for label in classes]
    return np.asarray(weights, config.floatx())[places.reshape(labels.shape)]


def check_validation_split(fraction: float) -> None:
    if isinstance(fraction, bool) or not 0 < fraction < 1:
        raise ValueError(
            "validation_split must be a number between 0 and 1, for example 0.1. Received: "
            f"validation_split={fraction}"
        )


def check_class_weight(class_weight: dict) -> None:
    if not isinstance(class_weight, dict):
        raise ValueError(
            "class_weight must be a dictionary from class numbers to weights, for example "
            f"{{0: 1.0, 1: 5.0}}. Received: {type(class_weight).__name__}"
        )
    for key, weight in class_weight.items():
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)) or key < 0:
            raise ValueError(
                "The keys of class_weight must be class numbers, integers from 0 on. Received: "
                f"{key!r}"
            )
        if not isinstance(weight, (int, float, np.number)) or not np.isfinite(weight):
            raise ValueError(
                f"class_weight must hold finite numbers. Received: {weight!r} for class {key}"
            )


def check_positive_int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1. Received: {name}={value!r}")
    return int(value)


def _shown_lengths(name: str, lengths: list[int]) -> str:
    """Lengths of the arrays of a part; equal ones once where there are many."""
    if len(lengths) <= _MANY:
        return f"{name}: {' and '.join(map(str, lengths))}"
    return f"{name}: {' and '.join(map(str, dict.fromkeys(lengths)))} in {len(lengths)} arrays"


def _stack_hint(name: str, arrays: int) -> str:
    if arrays <= _MANY:
        return ""
    return (
        f" A list has an array for each of the model's inputs or outputs: if {name} is a list of "
        f"samples, pass np.stack({name})."
    )


def _as_arrays(structure: Any, name: str) -> Any:
    def named(path: tuple) -> str:
        return name + "".join(f"[{key!r}]" for key in path)

    def named_list(path: tuple) -> str:
        # Lists in lists are samples of one array.
        return named(tuple(itertools.takewhile(lambda key: isinstance(key, str), path)))

    def walk(part: Any, path: tuple) -> Any:
        if isinstance(part, dict):
            return {key: walk(item, (*path, key)) for key, item in part.items()}
        if isinstance(part, (list, tuple)):
            _reject_numbers(part, named_list(path))
            items = [walk(item, (*path, i)) for i, item in enumerate(part)]
            return type(part)(*items) if hasattr(part, "_fields") else type(part)(items)
        return _as_array(part, named(path))

    return walk(structure, ())


def _reject_numbers(items: Any, name: str) -> None:
    if not items:
        raise ValueError(f"There are no samples in the data: {name} is an empty list.")
    if all(isinstance(item, (bool, int, float, str, bytes, np.generic)) for item in items):
        raise TypeError(
            f"{name} is a list of {type(items[0]).__name__}: lists are read as one array for each "
            f"of the model's inputs or outputs. Pass an array, np.asarray({name})."
        )
    if any(_is_picture(item) for item in items):
        raise TypeError(
            f"{name} is a list of images ({type(items[0]).__name__}). Pass one array of numbers: "
            f"np.stack([np.asarray(image) for image in {name}]), with images of one size."
        )


def _is_picture(value: Any) -> bool:
    return type(value).__module__.startswith("PIL.")


def _as_array(value: Any, name: str) -> Array | None:
    """Returns an array of a dtype that the device has, on host or GPU; floats become `floatx`."""
    if value is None or (type(value) is np.ndarray and value.ndim and value.dtype in _USED_AS_IS):
        return value
    about_columns = ""
    on_gpu = device_array(value)
    if on_gpu is not None:
        value = on_gpu
    elif isinstance(value, _core.Tensor):
        value = value.numpy()
    elif not isinstance(value, np.ndarray):
        if not hasattr(value, "__array__") and not shares_memory(value):
            way_out = (
                f"Pass a batch of its numbers: np.asarray({name})[None]."
                if _is_picture(value)
                else "Lists and tuples are read as one array for each input or output of the model."
            )
            raise TypeError(f"{name} must be an array. Received: {type(value).__name__}. {way_out}")
        given, value = value, import_array(value)
        if value.dtype.kind not in "biuf":
            about_columns = tables.what_is_wrong(given)
    if value.ndim == 0:
        raise ValueError(
            f"{name} must have an axis of samples, shape (num_samples, ...). Received a single "
            f"value: {value!r}. Samples of a data set are put together first, for example by "
            "batch(32)."
        )
    return _standardize_dtype(value, name, about_columns)


def import_array(value: Any) -> np.ndarray:
    """Converts an array of another library to NumPy's; it keeps a dtype that NumPy knows."""
    library = type(value).__module__.partition(".")[0]
    if library == "torch":
        value = value.detach().cpu()
        # NumPy has no bfloat16, and floats become floatx later.
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    if not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    array = tables.as_array(value)
    # As in Keras, a column of a table keeps its axis.
    is_column = library == "pandas" and type(value).__name__ == "Series"
    return array[:, None] if is_column else array


def _standardize_dtype(array: Array, name: str, about_columns: str) -> Array:
    dtype = array.dtype.name
    if array.dtype.kind in "OSUaM" or array.dtype.kind == "m":
        kind = {"O": "Python objects", "M": "dates", "m": "time spans"}.get(
            array.dtype.kind, "strings"
        )
        about_text = _ABOUT_TEXT if is_text(array) else ""
        if about_text and name == "y" and not about_columns:
            raise TypeError(
                "y holds text, but models take numbers. Names of classes become numbers from 0 on "
                "by names, y = np.unique(y, return_inverse=True)."
            )
        if about_columns:
            raise TypeError(
                f"{name} is a table, but models take numbers.{about_columns}{about_text}"
            )
        raise TypeError(
            f"{name} holds {kind} (dtype {array.dtype}), but models take numbers. Convert it "
            f"first, for example {name}.astype('float32')"
            + (", or np.stack it where its items are arrays." if kind == "Python objects" else ".")
            + about_text
        )
    if dtype in _UNSIGNED:
        if array.size and array.max() > np.iinfo(_UNSIGNED[dtype]).max:
            raise TypeError(f"{name} has values of dtype {dtype} that don't fit into int64.")
        return array.astype(_UNSIGNED[dtype])
    if dtype not in dtypes.ALL:
        raise TypeError(
            f"{name} has the dtype {array.dtype}, which is not supported. Use one of "
            f"{', '.join(dtypes.ALL)}, for example {name}.astype('float32')."
        )
    if dtypes.is_float(dtype) and dtype != config.floatx():
        return array.astype(dtypes.numpy_dtype(config.floatx()))
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _compact_labels(y: Any) -> Any:
    """Converts class numbers once to int32, in which losses and metrics compare them."""

    def convert(leaf: Array | None) -> Array | None:
        if leaf is None or leaf.dtype.kind not in "iu":
            return leaf
        is_labels = leaf.ndim == 1 or (leaf.ndim == 2 and leaf.shape[1] == 1)
        if not is_labels or not leaf.size:
            return leaf
        if leaf.dtype in _NARROW:
            return leaf.astype(np.int32, copy=False)
        limits = np.iinfo(np.int32)
        fits = leaf.min() >= limits.min and leaf.max() <= limits.max
        return leaf.astype(np.int32, copy=False) if fits else leaf

    return trees.map_structure(convert, y)


def _spread_weights(weights: Any, y: Any) -> Any:
    """Uses a single array of weights for each of several outputs."""
    if is_nested(y) and not is_nested(weights):
        if weights.ndim > 2 or (weights.ndim == 2 and weights.shape[1] != 1):
            raise ValueError(
                "For a model with several outputs a single sample_weight array must have one "
                f"weight per sample, shape (num_samples,). Received: shape {weights.shape}. Pass "
                "one array for each output instead."
            )
        return trees.map_structure(lambda _: weights, y)
    return weights


def _check_weights(weights: Any, y: Any) -> None:
    if y is None:
        raise ValueError("sample_weight was given without y: pass y, or leave it out.")
    if is_nested(weights) and len(trees.flatten(weights)) != len(trees.flatten(y)):
        raise ValueError(
            "Pass one sample_weight array for each array of y. Received "
            f"{len(trees.flatten(weights))} for {len(trees.flatten(y))}."
        )
    for weight in trees.flatten(weights):
        if weight is not None and weight.dtype.kind not in "iufbV":
            raise TypeError(f"sample_weight must hold numbers. Received dtype {weight.dtype}.")
