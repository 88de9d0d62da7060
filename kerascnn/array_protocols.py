"""The methods that Python and NumPy call on arrays: text, numbers, copies, pickles, comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn import _core, dtypes, tracing
from kerascnn.symbolic.no_value import operator_of

# As in NumPy, an axis with more than 2 * `_EDGE` elements shows only so many at each end.
_EDGE = 3
_PRINTED = 100


def _quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Runs with values at once, without recording on tapes."""

    def run(*args: Any) -> Any:
        with tracing.suspended(), _core.RecordingPause():
            return function(*args)

    return run


@_quietly
def _edges(tensor: Any) -> np.ndarray[Any, Any]:
    """Copies the printed elements to the host: of long axes, the ends and one in between."""
    from kerascnn import ops

    for axis, extent in enumerate(tensor.shape):
        if extent > 2 * _EDGE + 1:
            ends = [*range(_EDGE + 1), *range(extent - _EDGE, extent)]
            tensor = ops.take(tensor, ends, axis=axis)
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def tensor_repr(self: Any) -> str:
    """Prints a tensor, and copies only the printed part of a large one to the host."""
    is_long = self.size > _PRINTED
    array = _edges(self) if is_long else self.numpy()
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    threshold = 0 if is_long else _PRINTED
    values = np.array2string(
        array, separator=", ", prefix="Tensor(", threshold=threshold, edgeitems=_EDGE
    )
    return (
        f"Tensor({values}, shape={tuple(self.shape)}, dtype={self.dtype}, device={self.device!r})"
    )


def item(self: Any) -> Any:
    """Returns the only element as a Python number."""
    if self.size != 1:
        raise ValueError(
            "Only a tensor of one element can be a Python number. Received: "
            f"shape={tuple(self.shape)}"
        )
    array = self.numpy()
    return array.reshape(()).astype("float64" if array.dtype.kind == "V" else array.dtype).item()


def truth(self: Any) -> bool:
    """Returns the truth value of the only element."""
    if self.size != 1:
        raise ValueError(
            f"A tensor of {self.size} elements is neither true nor false. Use ops.any(x) or "
            f"ops.all(x) of what you compare, or x.size. Received: shape={tuple(self.shape)}"
        )
    return bool(item(self))


def index(self: Any) -> int:
    """Returns a single integer for use as an index or a length."""
    if self.shape or not dtypes.is_integer(self.dtype):
        raise TypeError(
            "Only a tensor of a single whole number, shape (), can be an index. Received: "
            f"shape={tuple(self.shape)}, dtype={self.dtype}"
        )
    return int(item(self))


def length(self: Any) -> int:
    """The extent of the first axis."""
    if not self.shape:
        raise TypeError("A tensor without axes has no length.")
    return int(self.shape[0])


def iterate(self: Any) -> Any:
    """The parts along the first axis."""
    if not self.shape:
        raise TypeError("A tensor without axes cannot be iterated over.")
    return (self[i] for i in range(self.shape[0]))


def contains(self: Any, element: Any) -> bool:
    """Tells whether an element equals it, as in NumPy."""
    from kerascnn import ops

    return bool(_quietly(lambda: ops.any(self == element))())


def formatted(self: Any, spec: str) -> str:
    """A single number as numbers are formatted; other tensors as they are printed."""
    if not spec:
        return str(self)
    if self.shape:
        raise TypeError(
            f"The format {spec!r} is one of numbers, and a tensor of shape {tuple(self.shape)} is "
            "not one. Use its elements, x.item() or x.numpy()."
        )
    return format(float(self) if dtypes.is_float(self.dtype) else int(self), spec)


def set_item(self: Any, key: Any, value: Any) -> None:
    """Raises an error: tensors do not change."""
    raise TypeError(
        f"A {type(self).__name__} does not support item assignment. Use ops.scatter_update, "
        "ops.slice_update or ops.where for a new tensor, or keras.Variable.assign for a value that "
        "changes."
    )


def divide_and_remain(self: Any, other: Any) -> tuple[Any, Any]:
    """`(self // other, self % other)`."""
    return self // other, self % other


def reflected_divide_and_remain(self: Any, other: Any) -> tuple[Any, Any]:
    return other // self, other % self


def compared_by(name: str) -> Callable[[Any, Any], Any]:
    """`==` and `!=`. What is no number equals no element, as in NumPy."""

    def compare(self: Any, other: Any) -> Any:
        from kerascnn import ops

        if other is None or isinstance(other, (str, bytes)):
            return ops.full(tuple(self.shape), name == "not_equal", "bool")
        return getattr(ops, name)(self, other)

    return compare


def bits_or_truth(name: str, *operands: Any) -> Any:
    """`&`, `|`, `^` and `~` by the names "and", "or", "xor" and "not".

    They are of the bits of integers, as with other libraries' arrays, and of truth values where
    there are floats.
    """
    from kerascnn import ops

    is_float = any(
        isinstance(x, float) or "float" in str(getattr(x, "dtype", "")) for x in operands
    )
    return getattr(ops, f"{'logical' if is_float else 'bitwise'}_{name}")(*operands)


def apply_operator(name: str, *operands: Any) -> Any:
    """The function of `ops` that stands for an operator; see `operator_of`."""
    from kerascnn import ops

    if name.startswith("bitwise_"):
        return bits_or_truth(name.removeprefix("bitwise_"), *operands)
    return getattr(ops, name)(*operands)


def _rebuilt(array: np.ndarray[Any, Any], device_name: str) -> Any:
    return _core.from_numpy(array, device_name)


def tensor_reduce(self: Any) -> Any:
    """Pickles hold the values and the device, without what tapes know."""
    return _rebuilt, (np.array(self.numpy()), self.device)


def tensor_copy(self: Any) -> Any:
    """Copies the tensor to other memory on the same device; tapes follow the copy."""
    return self.copy()


def tensor_deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    return memo.setdefault(id(self), self.copy())


def to_list(self: Any) -> Any:
    """The elements as Python numbers, in lists nested like the axes."""
    array = self.numpy()
    return (array.astype(np.float32) if array.dtype.kind == "V" else array).tolist()


def _of_value(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method for variables, which apply it to the tensor that they hold."""

    def method(self: Any, *args: Any) -> Any:
        value = self.value
        if isinstance(value, _core.Value):
            return getattr(value, name)(*args)  # raises the error
        return function(value, *args)

    method.__doc__ = function.__doc__
    return method


def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Runs NumPy's operators as ours if an array is first; other functions get arrays."""
    name = operator_of(ufunc.__name__)
    if name is not None and method == "__call__" and not kwargs:
        return apply_operator(name, *inputs)
    arrays = [np.asarray(x) if isinstance(x, type(self)) else x for x in inputs]
    return getattr(ufunc, method)(*arrays, **kwargs)


# These are for tensors, and for variables, which hand them the tensor that they hold.
_VALUES: dict[str, Callable[..., Any]] = {
    "__float__": lambda self: float(item(self)),
    "__int__": lambda self: int(item(self)),
    "__index__": index,
    "__contains__": contains,
    "tolist": to_list,
}
# These are the same for both.
_SHARED: dict[str, Callable[..., Any]] = {
    "__len__": length,
    "__format__": formatted,
    "__setitem__": set_item,
    "__eq__": compared_by("equal"),
    "__ne__": compared_by("not_equal"),
    "__hash__": object.__hash__,
    "__array_ufunc__": array_ufunc,
    "__divmod__": divide_and_remain,
    "__rdivmod__": reflected_divide_and_remain,
}
_TENSORS: dict[str, Callable[..., Any]] = {
    "__repr__": tensor_repr,
    "__bool__": truth,
    "__iter__": iterate,
    "__reduce__": tensor_reduce,
    "__copy__": tensor_copy,
    "__deepcopy__": tensor_deepcopy,
    "item": item,
}


def install(tensor: Any, variable: Any) -> None:
    """Gives the classes of tensors and variables these methods."""
    for name, function in {**_VALUES, **_SHARED, **_TENSORS}.items():
        setattr(tensor, name, function)
    for name, function in _VALUES.items():
        setattr(variable, name, _of_value(name, function))
    for name, function in _SHARED.items():
        setattr(variable, name, function)
