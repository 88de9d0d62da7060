"""Names of element types, and the type that several operands meet in.

The rules are those of Keras: Python scalars are weak (they take the type of the arrays that they
meet), and the default floating type is `kerascnn.config.floatx()`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kerascnn import config

FLOATING = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGER = ("uint8", *SIGNED)
ALL = ("bool", *INTEGER, *FLOATING)

ITEMSIZE = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}

_ALIASES = {"float": "float32", "int": "int32", "half": "float16", "double": "float64"}
_PYTHON_TYPES = {bool: "bool", int: "int32"}


class UnknownDTypeError(TypeError, ValueError):
    """A dtype that tensors cannot have. Keras raises ValueError, NumPy TypeError."""


def standardize_dtype(dtype: Any) -> str:
    """The name of a dtype given as a name, a NumPy dtype, a Python type or None (`floatx`).

    Args:
        dtype: One of them.

    Returns:
        A name such as "float32".

    Raises:
        UnknownDTypeError: for a type that tensors cannot have; a TypeError and a ValueError.

    Example:

    >>> from kerascnn.dtypes import standardize_dtype
    >>> import numpy as np
    >>> standardize_dtype(np.float32), standardize_dtype(None), standardize_dtype("int64")
    ('float32', 'float32', 'int64')
    """
    if dtype is None or dtype is float:
        return config.floatx()
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return _PYTHON_TYPES[dtype]
    if isinstance(dtype, str):
        name = _ALIASES.get(dtype, dtype)
    else:
        name = getattr(dtype, "name", None) or str(dtype)
        if name not in ALL:
            try:
                name = np.dtype(dtype).name
            except TypeError:
                name = str(name).rpartition(".")[2]  # "torch.float32"
    if name not in ALL:
        raise UnknownDTypeError(
            f"The dtype {dtype!r} is not supported. Tensors can be {', '.join(ALL)}. "
            "Convert the data first, for example with x.astype('float32')."
        )
    return name


def standardize_symbolic_dtype(dtype: Any) -> str:
    """As `standardize_dtype`, for what stands for data: that can also be text, "string"."""
    return "string" if dtype in ("string", str) else standardize_dtype(dtype)


def is_float(dtype: str) -> bool:
    """Tells whether a dtype name stands for a floating type."""
    return dtype in FLOATING


def is_integer(dtype: str) -> bool:
    """Tells whether a dtype name stands for an integer type (bool is none)."""
    return dtype in INTEGER


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def limits(name: str) -> tuple[float, float]:
    """The lowest and the largest finite number of a dtype that is not bool."""
    if is_integer(name):
        whole = np.iinfo(name)
        return int(whole.min), int(whole.max)
    most = (2.0 - 2.0**-7) * 2.0**127 if name == "bfloat16" else float(np.finfo(name).max)
    return -most, most


def result_type(*operands: Any) -> str:
    """The type that operands meet in. Each is a dtype name, or the Python type int, float or bool.

    Args:
        *operands: Names of dtypes, or the types int, float or bool, which stand for Python numbers.

    Returns:
        The name of a dtype.

    Example:

    >>> from kerascnn.dtypes import result_type
    >>> result_type("int64", "float16"), result_type("uint8", float), result_type("uint8", "int8")
    ('float16', 'float32', 'int16')
    """
    return _result_type(operands, config.floatx())


@functools.lru_cache(maxsize=4096)  # asked in each call of each op, of few types
def _result_type(operands: tuple[Any, ...], floatx: str) -> str:
    weak = {x for x in operands if x in (int, float)}
    strong = {"bool" if x is bool else standardize_dtype(x) for x in operands if x not in weak}
    floats = [x for x in strong if is_float(x)]
    if floats:
        if set(floats) == {"float16", "bfloat16"}:
            return "float32"
        return max(floats, key=FLOATING.index)
    if float in weak:
        return floatx
    integers = [x for x in strong if is_integer(x)]
    if integers:
        signed = [x for x in integers if x in SIGNED]
        if not signed:
            return "uint8"
        widest = max(signed, key=SIGNED.index)
        return "int16" if widest == "int8" and "uint8" in integers else widest
    return "int32" if int in weak else "bool"


def float_result_type(*operands: Any) -> str:
    """As `result_type`, but floating: integers become `floatx`, as in a division or a mean."""
    return result_type(*operands, float)
