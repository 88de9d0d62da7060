"""Objects that stand for values that do not exist yet, and the error when one is requested.

A `Value` is recorded for a compiled program, a `KerasTensor` for a model. Python's `if`, `float()`
and the like, NumPy and other libraries need numbers; the error says which line asked, and what to
write in its place.
"""

from __future__ import annotations

import linecache
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

# Frames of these modules are not the user's.
_LIBRARIES = frozenset({"kerascnn", "numpy", "torch", "jax", "contextlib", "functools", "typing"})

_BRANCH = "keras.ops.where or keras.ops.cond"
# For each method, this is what asks for a value and what to write instead.
_METHODS = {
    "__bool__": ("A condition (`if`, `while`, `and`, `not`, bool())", _BRANCH),
    "__float__": ("float()", "the tensor itself, or keras.ops.cast"),
    "__int__": ("int()", "the tensor itself, or keras.ops.cast"),
    "__complex__": ("complex()", "the tensor itself, or keras.ops.cast"),
    "__index__": ("An index, a length or range()", "keras.ops.take or keras.ops.fori_loop"),
    "__iter__": ("Iteration", "keras.ops.unstack, keras.ops.scan or keras.ops.vectorized_map"),
    "__contains__": ("`in`", "keras.ops.any(keras.ops.equal(...))"),
    "__array__": ("NumPy", "functions of keras.ops"),
    "__dlpack__": ("Another library", "functions of keras.ops"),
    "__dlpack_device__": ("Another library", "functions of keras.ops"),
    "__jax_array__": ("JAX", "functions of keras.ops"),
}
# These are the answers if the value is known while recording.
_ANSWERS: dict[str, Callable[..., Any]] = {
    "__bool__": bool,
    "__float__": float,
    "__int__": int,
    "__index__": operator.index,
    "__iter__": iter,
    "__array__": lambda array, dtype=None, copy=None: array.astype(dtype or array.dtype),
}
# These attributes do not exist, so that `hasattr` tells which objects have values.
_ATTRIBUTES = ("numpy", "item", "tolist", "detach", "cpu")
# Arrays and tensors of other libraries call these for an operator if they come first.
_OPERATORS = {
    "add": "add",
    "subtract": "subtract",
    "sub": "subtract",
    "multiply": "multiply",
    "mul": "multiply",
    "divide": "divide",
    "div": "divide",
    "true_divide": "divide",
    "floor_divide": "floor_divide",
    "remainder": "mod",
    "power": "power",
    "pow": "power",
    "matmul": "matmul",
    "less": "less",
    "lt": "less",
    "less_equal": "less_equal",
    "le": "less_equal",
    "greater": "greater",
    "gt": "greater",
    "greater_equal": "greater_equal",
    "ge": "greater_equal",
    "equal": "equal",
    "eq": "equal",
    "not_equal": "not_equal",
    "ne": "not_equal",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "left_shift": "left_shift",
    "right_shift": "right_shift",
}


def operator_of(name: str) -> str | None:
    """Returns the function of `ops` for an operator of another library's arrays, or None."""
    return _OPERATORS.get(name)


class NoValueError(TypeError, AttributeError):
    """A value was requested that does not exist while a step, a function or a model is recorded."""


def no_value(tensor: Any, asks: str, instead: str) -> NoReturn:
    """Raises the error of who asks for the value of something that has none.

    Args:
        tensor: what has no value.
        asks: who asks, as the beginning of a sentence.
        instead: what to write in its place.
    """
    raise NoValueError(
        f"{asks} needs a value, but {tensor!r} {tensor._why_no_value}{_user_line()} Use {instead} "
        f"in its place{tensor._other_way}."
    )


def _user_line() -> str:
    """Returns the user's line that asked: the innermost frame outside all libraries."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in _LIBRARIES:
            break
        frame = frame.f_back
    if frame is None:
        return ""
    name, number = frame.f_code.co_filename, frame.f_lineno
    line = linecache.getline(name, number).strip()
    text = f' It is asked for in {frame.f_code.co_name} (File "{name}", line {number})'
    return f"{text}: `{line}`." if line else f"{text}."


def _method(
    asks: str, instead: str, answer: Callable[..., Any] | None = None, known: Any = None
) -> Callable[..., Any]:
    def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        array = None if answer is None or known is None else known(self)
        if array is not None:
            return answer(array, *args, **kwargs)  # type: ignore[misc]
        no_value(self, asks, instead)

    return ask


def _format(self: Any, spec: str) -> str:
    if spec:
        no_value(self, f"The format {spec!r}", "print outside of the step, or a log of it,")
    return repr(self)


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Treats NumPy's operators on an array as operators; its other functions need numbers."""
    name = operator_of(ufunc.__name__)
    if method != "__call__" or kwargs or name is None:
        no_value(self, f"NumPy's {ufunc.__name__}", "functions of keras.ops")
    from kerascnn.array_protocols import apply_operator

    return apply_operator(name, *inputs)


def _torch_function(
    cls: Any, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """Does what `_array_ufunc` does, for PyTorch."""
    label = getattr(function, "__name__", str(function))
    name = operator_of(label.strip("_"))
    if not kwargs and name is not None and len(args) == 2:
        from kerascnn.array_protocols import apply_operator

        return apply_operator(name, *args)
    values = [x for x in _leaves((args, kwargs)) if isinstance(x, cls)]
    no_value(values[0] if values else cls, f"PyTorch's {label}", "functions of keras.ops")


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return _leaves(tuple(x.values()))
    return [y for item in x for y in _leaves(item)] if isinstance(x, (list, tuple)) else [x]


def install(cls: Any, why: str, other_way: str, known: Callable[[Any], Any] | None = None) -> None:
    """Gives a class without values the methods that say so.

    Args:
        cls: the class.
        why: why it has none, from the verb on, as whole sentences.
        other_way: what else can be done, to follow "Use ... in its place".
        known: the NumPy array that one of them stands for all the same, or None.
    """
    cls._why_no_value, cls._other_way = why, other_way
    for name, (asks, instead) in _METHODS.items():
        setattr(cls, name, _method(asks, instead, _ANSWERS.get(name), known))
    for name in _ATTRIBUTES:
        ask = _method(f"`{name}`", "functions of keras.ops")
        setattr(cls, name, property(ask, doc="There is none: what has no value has no numbers."))
    cls.__format__ = _format
    cls.__array_ufunc__ = _array_ufunc
    cls.__torch_function__ = classmethod(_torch_function)
