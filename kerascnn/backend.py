"""`keras.backend`: settings and small questions about dtypes under the names that Keras has.

>>> import kerascnn as keras
>>> keras.backend.floatx(), keras.backend.is_float_dtype("bfloat16")
('float32', True)
"""

from __future__ import annotations

from typing import Any

from kerascnn import dtypes, former_names, naming
from kerascnn.config import (
    backend,
    epsilon,
    floatx,
    image_data_format,
    set_epsilon,
    set_floatx,
    set_image_data_format,
)
from kerascnn.dtypes import result_type, standardize_dtype
from kerascnn.utils import clear_session, is_keras_tensor

__all__ = [
    "backend",
    "clear_session",
    "epsilon",
    "floatx",
    "get_uid",
    "image_data_format",
    "is_float_dtype",
    "is_int_dtype",
    "is_keras_tensor",
    "result_type",
    "set_epsilon",
    "set_floatx",
    "set_image_data_format",
    "standardize_dtype",
]


def is_float_dtype(dtype: Any) -> bool:
    """Tells whether a dtype is a floating one.

    Args:
        dtype: As `standardize_dtype` takes it.

    Returns:
        True or False.

    Example:

    >>> import kerascnn as keras
    >>> keras.backend.is_float_dtype("bfloat16"), keras.backend.is_float_dtype("int32")
    (True, False)
    """
    return dtypes.is_float(standardize_dtype(dtype))


def is_int_dtype(dtype: Any) -> bool:
    """Tells whether a dtype is an integer one (bool is none).

    Args:
        dtype: As `standardize_dtype` takes it.

    Returns:
        True or False.

    Example:

    >>> import kerascnn as keras
    >>> keras.backend.is_int_dtype("uint8"), keras.backend.is_int_dtype("bool")
    (True, False)
    """
    return dtypes.is_integer(standardize_dtype(dtype))


def get_uid(prefix: str = "") -> int:
    """The next number of a series of automatic names, from 1 on.

    Args:
        prefix: The name of the series.

    Returns:
        A number.

    Example:

    >>> import kerascnn as keras
    >>> keras.backend.get_uid("stage"), keras.backend.get_uid("stage")
    (1, 2)
    """
    return naming.next_uid(prefix)


# These had other names before.
__getattr__ = former_names.module_getattr(__name__)
