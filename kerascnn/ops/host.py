"""Ops that only NumPy computes, on the host: shapes that depend on values, and bits.

In a traced step, values are not known, so these ops only take constants there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from kerascnn import _core, dtypes, tracing, trees
from kerascnn.ops import dispatch
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import op
from kerascnn.variable import Variable

__all__ = ["nextafter", "nonzero", "unique", "view"]

P = ParamSpec("P")
R = TypeVar("R")


def is_known(x: Any) -> bool:
    """Tells whether the values of an argument are known, and constant while a step runs."""
    if isinstance(x, (list, tuple)):
        return all(is_known(part) for part in x)
    if isinstance(x, Variable):
        return tracing.current() is None
    return not isinstance(x, (_core.Value, KerasTensor))


def at_once(function: Callable[P, R]) -> Callable[P, R]:
    """Computes a function whose arguments are known before a traced step, in which its results are
    constants; the function itself sees no trace then.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if tracing.current() is None or not all(map(is_known, trees.leaves((args, kwargs)))):
            return function(*args, **kwargs)
        with tracing.suspended():
            result = function(*args, **kwargs)
        constants: R = trees.map_structure(dispatch.convert, result)
        return constants

    return call


def compute(name: str, function: Callable[..., Any], *operands: Any) -> Any:
    """Computes a function of operands as NumPy arrays; results are tensors on their device.

    Args:
        name: The op, for errors.
        function: Takes and returns arrays, the latter also in a tuple or list.
        operands: Arguments of the op that are tensors.

    Raises:
        ValueError: for operands that a step or a model computes.
    """
    if not all(is_known(x) for x in operands):
        raise ValueError(
            f"{name}: the values of its arguments are not known here. It is computed by NumPy, "
            "outside of compiled steps and of functional models, and has no gradient. Call it on "
            "tensors or arrays before the step, and pass what it gives to the step as an input, or "
            "keep it in a keras.Variable."
        )
    like = dispatch.first_tensor(*operands)
    tensors = [dispatch.convert(x) for x in operands]
    result = function(*(x.numpy() for x in tensors))
    is_one = not isinstance(result, (tuple, list))
    results = [_tensor(part, like) for part in ([result] if is_one else result)]
    if any(_core.is_tracked(x) for x in tensors):
        results = _core.record_function(name, tensors, results, functools.partial(_refuse, name))
    return results[0] if is_one else tuple(results)


def _refuse(name: str, upstream: Any) -> Any:
    raise ValueError(
        f'op "{name}" is not differentiable: it is computed by NumPy, on the host. A gradient was '
        "asked for that leads through it; put stop_gradient around its result where that is to "
        "count as a constant, or give it a gradient with custom_gradient"
    )


def _tensor(array: Any, like: Any) -> Any:
    return dispatch.convert(np.asarray(array), like=like)


@op
@at_once
def nonzero(x: Any) -> Any:
    """Where the elements are not 0; not in compiled steps, as the number of places is not known.

    Args:
        x: Tensor of any dtype with at least one axis; NaN counts as something else than 0.

    Returns:
        int32 (axes of x, places): one row of indices for each axis.

    Raises:
        ValueError: for a number, and for values of a compiled step.

    Example:

    >>> from kerascnn import ops
    >>> rows, columns = ops.nonzero([[0, 5], [7, 0]])
    >>> rows.numpy().tolist(), columns.numpy().tolist()
    ([0, 1], [1, 0])
    """
    return compute("nonzero", lambda a: np.stack(np.nonzero(a)).astype("int32"), x)


@op
@at_once
def unique(
    x: Any,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Each element once, from the smallest to the largest; not in compiled steps.

    Args:
        x: Input.
        sorted: They are in order either way.
        return_index: Whether the first place of each is returned too.
        return_inverse: Whether the place of every element of x among them is.
        return_counts: Whether it is how often each is there.
        axis: Slices along an axis in place of elements; by default the flattened tensor's elements.
        size: How many are returned: the first ones, or with `fill_value` behind them.
        fill_value: By default 0.

    Returns:
        The elements, or a tuple of them and what else was asked for as int32, in the order of the
        arguments. What fills up has a count of 0 and the index 1.

    Raises:
        ValueError: for values of a compiled step.

    Example:

    >>> from kerascnn import ops
    >>> values, counts = ops.unique([3, 1, 3], return_counts=True)
    >>> values.numpy().tolist(), counts.numpy().tolist()
    ([1, 3], [1, 2])
    """

    def find(a: np.ndarray[Any, Any]) -> Any:
        values, index, inverse, counts = np.unique(a, True, True, True, axis=axis, equal_nan=False)
        along = 0 if axis is None else axis
        values = _of_size(values, along, size, 0 if fill_value is None else fill_value)
        inverse = inverse.reshape(a.shape if axis is None else -1)
        asked = [
            part.astype("int32")
            for part, wanted in (
                (_of_size(index, 0, size, 1), return_index),
                (inverse, return_inverse),
                (_of_size(counts, 0, size, 0), return_counts),
            )
            if wanted
        ]
        return (values, *asked) if asked else values

    return compute("unique", find, x)


def _of_size(array: Any, axis: int, size: int | None, fill_value: Any) -> Any:
    """Returns the first `size` slices of an array, padded with others if there are fewer."""
    if size is None:
        return array
    array = np.moveaxis(array, axis, 0)[:size]
    if len(array) < size:
        rest = np.full((size - len(array), *array.shape[1:]), fill_value, array.dtype)
        array = np.concatenate([array, rest])
    return np.moveaxis(array, 0, axis)


@op
@at_once
def nextafter(x1: Any, x2: Any) -> Any:
    """The number of the dtype next to x1 on the way to x2; not in compiled steps.

    Args:
        x1: Tensor of any shape; integers become `floatx`.
        x2: Tensor that broadcasts with it. Where it is equal to x1, so is the result.

    Returns:
        A tensor of the broadcast shape and the dtype that both promote to; NaN where either is.

    Raises:
        ValueError: for values of a compiled step.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.nextafter.html

    Example:

    >>> from kerascnn import ops
    >>> (ops.nextafter([1.0], [2.0]) - 1.0).numpy().tolist() == [2.0**-23]
    True
    """
    if is_known([x1, x2]):
        x1, x2 = dispatch.operands(x1, x2, result=dtypes.float_result_type)
    return compute("nextafter", np.nextafter, x1, x2)


@op
@at_once
def view(x: Any, dtype: Any = None) -> Any:
    """The same bits as numbers of another dtype; not in compiled steps.

    Args:
        x: Tensor of any shape and dtype.
        dtype: By default that of x. Where its numbers take more or fewer bytes the last axis gets
            shorter or longer.

    Returns:
        A tensor of `dtype`: (..., n * bytes of a number of x / bytes of a number of `dtype`).

    Raises:
        ValueError: where the bytes of the last axis are no multiple, and for values of a compiled
            step.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.ndarray.view.html

    Example:

    >>> from kerascnn import ops
    >>> ops.view(ops.convert_to_tensor([1.0]), "int32").numpy().tolist()
    [1065353216]
    >>> ops.view(ops.ones((3, 2)), "uint8").shape
    (3, 8)
    """

    def read(a: np.ndarray[Any, Any]) -> Any:
        kind = a.dtype if dtype is None else dtypes.numpy_dtype(dtypes.standardize_dtype(dtype))
        row = (a.shape[-1] if a.shape else 1) * a.dtype.itemsize
        if row % kind.itemsize or (not a.shape and kind.itemsize != a.dtype.itemsize):
            raise ValueError(
                f"Cannot view array of shape {a.shape} and dtype {a.dtype} as dtype {kind}: the "
                f"bytes of its last axis are no multiple of {kind.itemsize}."
            )
        return a.view(kind)

    return compute("view", read, x)
