"""Making tensors, and going back to NumPy."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import _core, config, dtypes, tracing
from kerascnn.device import device as on_device
from kerascnn.ops import dispatch
from kerascnn.symbolic.operation import op

__all__ = [
    "arange",
    "cast",
    "convert_to_numpy",
    "convert_to_tensor",
    "eye",
    "full",
    "full_like",
    "is_tensor",
    "ndim",
    "ones",
    "ones_like",
    "shape",
    "size",
    "zeros",
    "zeros_like",
]


@op
def convert_to_tensor(x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None) -> Any:
    """Makes a tensor from an array, a list, a number or a variable.

    Args:
        x: Lists and numbers become `floatx` or int32 (int64 where an integer of a list needs
            it); arrays keep their dtype.
        dtype: What to cast to, by default none.
        sparse: Only None and False: there are no sparse tensors.
        ragged: Only None and False: there are no ragged tensors.

    Returns:
        A tensor in the shape of `x`.

    Raises:
        TypeError: for strings, objects and other things that are no numbers.
        ValueError: for sparse and ragged tensors.

    Example:

    >>> from kerascnn import ops
    >>> ops.convert_to_tensor([1, 2, 3]).dtype
    'int32'
    """
    if sparse or ragged:
        raise ValueError(f"Tensors are dense. Received: sparse={sparse}, ragged={ragged}")
    return dispatch.convert(x) if dtype is None else _cast(x, dtype)


def convert_to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """A NumPy array with the elements of a tensor; on the CPU it shares the tensor's memory.

    Args:
        x: A tensor, or what NumPy takes.

    Returns:
        An array in the shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.convert_to_numpy(ops.ones((2, 3))).shape
    (2, 3)
    """
    if isinstance(x, _core.Tensor):
        return x.numpy()
    return np.asarray(x)


def is_tensor(x: Any) -> bool:
    """Tells whether `x` is a tensor or, while a model is traced, stands for one.

    Args:
        x: Anything. Arrays, lists and variables are no tensors.

    Returns:
        A bool of Python.

    Example:

    >>> from kerascnn import ops
    >>> ops.is_tensor(ops.ones(2)), ops.is_tensor([1.0, 1.0])
    (True, False)
    """
    return dispatch.is_tensor(x)


@op
def cast(x: Any, dtype: Any) -> Any:
    """The elements as another dtype; floats are cut to integers, and anything but 0 is True.

    Args:
        x: Tensor of any shape and dtype.
        dtype: The new dtype. Integers beyond its range wrap around; `saturate_cast` cuts them
            to the range.

    Returns:
        A tensor in the shape of `x`.

    Raises:
        ValueError: for a dtype that tensors cannot have.

    Example:

    >>> from kerascnn import ops
    >>> ops.cast([1.5, -1.5], "int32").numpy().tolist()
    [1, -1]
    """
    return _cast(x, dtype)


def _cast(x: Any, dtype: Any) -> Any:
    name = dtypes.standardize_dtype(dtype)
    # By default Python's numbers become float32 or int32, which would lose digits here.
    is_wide = (name == "float64" and isinstance(x, (float, list, tuple))) or (
        name == "int64" and type(x) is int
    )
    return dispatch.convert(x if is_wide else dispatch.convert(x), name)


def shape(x: Any) -> tuple[int | None, ...]:
    """The shape of a tensor.

    Args:
        x: A tensor, array, list or number.

    Returns:
        A tuple of integers; sizes of a KerasTensor can be None.

    Example:

    >>> from kerascnn import ops
    >>> ops.shape([[1, 2, 3], [4, 5, 6]])
    (2, 3)
    """
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def ndim(x: Any) -> int:
    """The number of axes.

    Args:
        x: A tensor, array, list or number.

    Returns:
        An integer of Python.

    Example:

    >>> from kerascnn import ops
    >>> ops.ndim([[1, 2, 3], [4, 5, 6]])
    2
    """
    return len(shape(x))


def size(x: Any) -> int:
    """The number of elements.

    Args:
        x: A tensor, array, list or number, or a KerasTensor whose sizes are all known.

    Returns:
        An integer of Python.

    Example:

    >>> from kerascnn import ops
    >>> ops.size([[1, 2, 3], [4, 5, 6]])
    6
    """
    return int(np.prod([-1 if n is None else n for n in shape(x)], dtype=np.int64))


def full(shape: int | Sequence[int], fill_value: Any, dtype: Any = None) -> Any:
    """A tensor of one value.

    Args:
        shape: The sizes, or the size of a vector.
        fill_value: A number, or a tensor that is broadcast to the shape.
        dtype: By default that of the value: `floatx` or int32 for numbers.

    Returns:
        A tensor in the shape `shape`.

    Raises:
        ValueError: for a value that does not broadcast to the shape.

    Example:

    >>> from kerascnn import ops
    >>> ops.full((2, 2), 7).numpy().tolist()
    [[7, 7], [7, 7]]
    """
    sizes = dispatch.whole_sizes("full", shape)
    if isinstance(fill_value, (list, tuple)):
        fill_value = dispatch.convert(fill_value)
    if dtype is None:
        dtype = dispatch.type_of(fill_value)
    name = dtypes.standardize_dtype(dtype)
    trace = tracing.current()
    if isinstance(fill_value, (bool, int, float)):
        if trace is not None:
            return dispatch.full_in_trace(trace, sizes, name, fill_value)
        fill_value = np.full((), fill_value, dtypes.numpy_dtype(name))
    # One number goes to the device, which spreads it.
    value = dispatch.convert(fill_value, name)
    return dispatch.apply_one("broadcast_to", [value], {"shape": sizes})


def zeros(shape: int | Sequence[int], dtype: Any = None) -> Any:
    """A tensor of zeros.

    Args:
        shape: The sizes, or the size of a vector.
        dtype: By default `floatx`.

    Returns:
        A tensor in the shape `shape`.

    Example:

    >>> from kerascnn import ops
    >>> ops.zeros((2, 2)).numpy().tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    return full(shape, 0, dtype or config.floatx())


def ones(shape: int | Sequence[int], dtype: Any = None) -> Any:
    """A tensor of ones.

    Args:
        shape: The sizes, or the size of a vector.
        dtype: By default `floatx`.

    Returns:
        A tensor in the shape `shape`.

    Example:

    >>> from kerascnn import ops
    >>> ops.ones((2, 2), "int32").numpy().tolist()
    [[1, 1], [1, 1]]
    """
    return full(shape, 1, dtype or config.floatx())


@op
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """A tensor of one value, in the shape and on the device of another.

    Args:
        x: Tensor of any shape and dtype.
        fill_value: A number, or a tensor that is broadcast to the shape; it is cast to the
            dtype.
        dtype: By default that of `x`.

    Returns:
        A tensor in the shape of `x`.

    Raises:
        ValueError: for a value that does not broadcast to the shape.

    Example:

    >>> from kerascnn import ops
    >>> ops.full_like([1.0, 2.0], 7).numpy().tolist()
    [7.0, 7.0]
    """
    return _full_like(dispatch.convert(x), fill_value, dtype)


@op
def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Zeros in the shape and on the device of another tensor.

    Args:
        x: Tensor of any shape and dtype.
        dtype: By default that of `x`.

    Returns:
        A tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.zeros_like([[1, 2], [3, 4]]).numpy().tolist()
    [[0, 0], [0, 0]]
    """
    return _full_like(dispatch.convert(x), 0, dtype)


@op
def ones_like(x: Any, dtype: Any = None) -> Any:
    """Ones in the shape and on the device of another tensor.

    Args:
        x: Tensor of any shape and dtype.
        dtype: By default that of `x`.

    Returns:
        A tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.ones_like([[1, 2], [3, 4]]).numpy().tolist()
    [[1, 1], [1, 1]]
    """
    return _full_like(dispatch.convert(x), 1, dtype)


def _full_like(x: Any, fill_value: Any, dtype: Any) -> Any:
    """Makes a tensor of one value in the shape of `x`, on its device."""
    with on_device(x.device) if isinstance(x, _core.Tensor) else contextlib.nullcontext():
        return full(tuple(x.shape), fill_value, dtype or x.dtype)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """Evenly spaced numbers from start up to, but without, stop.

    Args:
        start: The first number, or with `stop` left out the stop of numbers that start at 0.
        stop: What no number reaches.
        step: Distance of neighbours, by default 1; negative for falling numbers.
        dtype: By default int32 for integers of Python, else what the arguments promote to.

    Returns:
        A vector of ceil((stop - start) / step) elements, or of none.

    Raises:
        ZeroDivisionError: for a step of 0.

    Example:

    >>> from kerascnn import ops
    >>> ops.arange(3).numpy().tolist()
    [0, 1, 2]
    >>> ops.arange(1.0, 0.0, -0.25).numpy().tolist()
    [1.0, 0.75, 0.5, 0.25]
    """
    if dtype is None:
        given = [x for x in (start, stop, step) if x is not None]
        dtype = dtypes.result_type(*(dispatch.type_of(x) for x in given))
    if stop is None:
        start, stop = 0, start
    array = np.arange(start, stop, 1 if step is None else step)
    return dispatch.convert(array.astype(dtypes.numpy_dtype(dtypes.standardize_dtype(dtype))))


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Ones on the k-th diagonal of a matrix of zeros.

    Args:
        N: Number of rows.
        M: Number of columns, by default N.
        k: The diagonal: 0 for the main one, positive above it, negative below.
        dtype: By default `floatx`.

    Returns:
        (N, M)

    Example:

    >>> from kerascnn import ops
    >>> ops.eye(2, 3, k=1).numpy().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return dispatch.convert(np.eye(N, M, k, dtypes.numpy_dtype(dtypes.standardize_dtype(dtype))))
