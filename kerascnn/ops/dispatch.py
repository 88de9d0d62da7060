"""The one place where op calls meet the core: conversion of arguments, and eager or recorded calls.

Arguments can be tensors (computed at once), symbolic values (inside a trace, where everything is
recorded), variables, NumPy and DLPack arrays, lists and Python numbers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from kerascnn import _core, dtypes, tables, tracing
from kerascnn.device import current as current_device
from kerascnn.interchange import shares_memory, tensor_over
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.no_value import NoValueError, no_value
from kerascnn.variable import Variable

Attributes = dict[str, Any]
# Arrays of these dtypes keep their dtype (bfloat16 would need ml_dtypes).
_KEPT = frozenset(np.dtype(name) for name in dtypes.ALL if name != "bfloat16")
_EXACT_IN_DOUBLE = 2**53
P = ParamSpec("P")
R = TypeVar("R")


def apply(name: str, inputs: Sequence[Any], attributes: Attributes | None = None) -> list[Any]:
    """Runs a core op on tensors, or records it on symbolic values while a trace is open."""
    trace = tracing.current()
    if trace is not None:
        values = [x if isinstance(x, _core.Value) else convert(x) for x in inputs]
        return record(trace.graph, name, values, attributes)
    for x in inputs:
        if isinstance(x, _core.Value):
            raise ValueError(
                f"{name}: a symbolic value was used after its trace had ended. Values made inside "
                "`call` or a compiled step do not outlive it: return them, or keep what should "
                "last in a keras.Variable."
            )
    return run(name, inputs, attributes)


def run(name: str, tensors: Sequence[Any], attributes: Attributes | None = None) -> list[Any]:
    """Runs a core op on tensors at once, even while a trace is open; returns all results."""
    return _core.apply(name, list(tensors), attributes or {})


def record(
    graph: _core.Graph, name: str, values: Sequence[Any], attributes: Attributes | None = None
) -> list[Any]:
    """Records a core op on values of a graph as a node; returns all results."""
    return graph.apply(name, list(values), attributes or {})


def at_once(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Lets the core run a function by itself where its arguments need no conversion.

    Those are tensors and variables of one dtype on one device, and Python numbers beside them, all
    by position, outside of traces. The function is called for everything else.

    Args:
        name: The core op that the function stands for.
    """
    attempt: Any = _core.at_once(name)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not kwargs:
                result: R = attempt(*args)
                if result is not NotImplemented:
                    return result
            return function(*args, **kwargs)

        return call

    return decorate


def apply_one(name: str, inputs: Sequence[Any], attributes: Attributes | None = None) -> Any:
    """Returns the first result of a core op."""
    return apply(name, inputs, attributes)[0]


def is_tensor(x: Any) -> bool:
    """Tells whether `x` is a tensor or a symbolic value of a trace."""
    return isinstance(x, (_core.Tensor, _core.Value))


def is_array_like(x: Any) -> bool:
    """Tells whether `x` is an array of NumPy or of another library, or a variable."""
    if isinstance(x, (KerasTensor, type)):
        return False
    return isinstance(x, Variable) or hasattr(x, "__array__") or shares_memory(x)


def to_numpy_array(x: Any, dtype: str | None = None) -> np.ndarray[Any, Any]:
    """Host data as a contiguous array of a supported dtype.

    Python floats become `floatx` and integers int32 where no dtype is asked for.

    Raises:
        TypeError: for strings, objects, complex numbers, and lists of unequal length.
    """
    if type(x) is np.ndarray and dtype is None and x.dtype in _KEPT and x.flags.c_contiguous:
        return x
    if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic):
        return np.asarray(x, dtypes.numpy_dtype(dtype or dtypes.standardize_dtype(type(x))))
    is_list = isinstance(x, (list, tuple))
    try:
        if is_list and any(is_tensor(item) or isinstance(item, Variable) for item in x):
            x = [np.asarray(item) for item in x]
        array = tables.as_array(x)
    except ValueError as error:
        raise TypeError(f"{_describe(x)} cannot be made a tensor: {error}") from None
    if array.dtype.kind not in "biufV" or (array.dtype.kind == "V" and array.dtype.name == "void"):
        raise TypeError(
            f"{_describe(x)} cannot be made a tensor: its elements are of type {array.dtype}. "
            f"Tensors hold numbers ({', '.join(dtypes.ALL)}); convert the data first, for example "
            f"with np.asarray(x, dtype='float32').{tables.what_is_wrong(x)}"
        )
    if dtype is None:
        if is_list and array.dtype.kind in "iuf":
            small = not array.size or (array.min() >= -(2**31) and array.max() < 2**31)
            integer = "int32" if small else "int64"
            dtype = dtypes.standardize_dtype(None) if array.dtype.kind == "f" else integer
        else:
            dtype = dtypes.standardize_dtype(array.dtype)
    # ascontiguousarray alone would turn scalars into vectors of one element.
    return np.ascontiguousarray(array, dtypes.numpy_dtype(dtype)).reshape(array.shape)


def to_tensor(x: Any, dtype: str | None = None, device_name: str | None = None) -> Any:
    """Makes an eager tensor of any argument that has values, whether a trace is open or not."""
    with tracing.suspended():
        return convert(x, dtype, device_name=device_name)


def convert(x: Any, dtype: str | None = None, like: Any = None, device_name: Any = None) -> Any:
    """A tensor, or inside a trace a symbolic value, of any argument of an op.

    Args:
        x: A tensor, symbolic value, variable, array, list or number.
        dtype: What to cast to, by default none.
        like: A tensor whose device new tensors go to.
        device_name: The device to be on; by default that of `x` or `like`, else the current one.
    """
    trace = tracing.current()
    if isinstance(x, Variable):
        x = x.value
    if isinstance(x, _core.Value):
        return x if dtype is None or x.dtype == dtype else apply_one("cast", [x], {"dtype": dtype})
    if isinstance(x, KerasTensor):
        no_value(x, "An op on values", "a layer or an op on KerasTensors alone")
    if trace is not None and isinstance(x, (bool, int, float)) and not isinstance(x, np.generic):
        return full_in_trace(trace, [], dtype or dtypes.standardize_dtype(type(x)), x)
    if isinstance(x, (list, tuple)) and _is_followed(x, trace is not None):
        from kerascnn.ops import joining

        x = joining.stack([convert(part, like=like, device_name=device_name) for part in x])
        return x if dtype is None or x.dtype == dtype else apply_one("cast", [x], {"dtype": dtype})
    if not isinstance(x, _core.Tensor):
        x = _import_array(x, dtype, device_name or _device_of(like))
    elif device_name is not None and x.device != device_name:
        x = x.to(device_name)
    if trace is not None:
        x = trace.constant(x)
    return x if dtype is None or x.dtype == dtype else apply_one("cast", [x], {"dtype": dtype})


def convert_floating(x: Any) -> Any:
    """A tensor or value of an argument as `convert` gives it; integers and bool become `floatx`."""
    x = convert(x)
    return x if dtypes.is_float(x.dtype) else convert(x, dtypes.float_result_type(x.dtype))


def whole_sizes(name: str, sizes: Any) -> list[int]:
    """The sizes of a shape; one alone is that of a vector.

    Raises:
        TypeError: for what are no whole numbers, which would be cut off.
    """
    one = isinstance(sizes, (int, np.integer))
    try:
        return [operator.index(n) for n in ([sizes] if one else sizes)]
    except NoValueError:
        raise
    except TypeError:
        raise TypeError(f"{name}: a shape is whole numbers. Received: {sizes!r}") from None


def full_in_trace(trace: Any, sizes: list[int], dtype: str, number: bool | int | float) -> Any:
    """A value of a trace that is one of Python's numbers everywhere.

    Raises:
        OverflowError: for a whole number that the dtype does not have, as outside of traces.
    """
    array = np.asarray(number, dtypes.numpy_dtype(dtype))
    if isinstance(number, int) and abs(number) > _EXACT_IN_DOUBLE and array.dtype.kind in "iu":
        # The graph's own node has a number of 64 bits as float64.
        value = trace.constant(_core.from_numpy(array, "cpu"))
        return apply_one("broadcast_to", [value], {"shape": sizes}) if sizes else value
    return trace.graph.full(sizes, dtype, float(number))


def _is_followed(x: Any, in_trace: bool) -> bool:
    """Tells whether a list holds what a trace or a tape follows, which a copy would lose."""
    if isinstance(x, (list, tuple)):
        return (in_trace or _core.is_recording()) and any(_is_followed(y, in_trace) for y in x)
    if isinstance(x, _core.Tensor):
        return bool(_core.is_tracked(x))
    return isinstance(x, (_core.Value, Variable))


def _device_of(like: Any) -> str | None:
    return like.device if isinstance(like, _core.Tensor) else None


def _import_array(x: Any, dtype: str | None, device_name: str | None) -> Any:
    target = device_name or ("cpu" if tracing.current() is not None else current_device())
    if not isinstance(x, np.ndarray) and shares_memory(x):
        return tensor_over(x).to(target)
    return _core.from_numpy(to_numpy_array(x, dtype), target)


def first_tensor(*operands: Any) -> Any:
    """Returns the first eager tensor (or variable's) among operands; it decides the device."""
    for x in operands:
        if isinstance(x, _core.Tensor):
            return x
        if isinstance(x, Variable):
            return x.core.value
    return None


def type_of(x: Any) -> Any:
    """Returns what promotion knows of an operand: a dtype name, or the type of a Python number."""
    if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic):
        return type(x)
    try:
        dtype = x.dtype
    except AttributeError:
        raise TypeError(
            f"Expected a number, an array or a tensor. Received: {x!r} (of type {type(x).__name__})"
        ) from None
    return dtypes.standardize_dtype(dtype)


def operands(*values: Any, result: Callable[..., str] | str = dtypes.result_type) -> list[Any]:
    """Operands converted to the one dtype that they meet in.

    Args:
        values: Arguments of an op.
        result: The promotion rule, or the dtype itself.
    """
    like = first_tensor(*values)
    known = [
        x if hasattr(x, "dtype") or (isinstance(x, (bool, int, float))) else convert(x, like=like)
        for x in values
    ]
    dtype = result if isinstance(result, str) else result(*(type_of(x) for x in known))
    return [convert(x, dtype, like=like) for x in known]


def _describe(x: Any) -> str:
    text = repr(x)
    return f"{text[:80]}{'...' if len(text) > 80 else ''} (of type {type(x).__name__})"
