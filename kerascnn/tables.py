"""Tables of pandas and polars, whose columns may be of different dtypes, as arrays of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_LIBRARIES = ("pandas", "polars")


def is_table(value: Any) -> bool:
    """Tells whether this is a table of one of these libraries, or a column of one."""
    return type(value).__module__.partition(".")[0] in _LIBRARIES and hasattr(value, "__array__")


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """A table as an array of numbers, in which missing ones are NaN, if all columns are numbers.

    Other tables become the array that NumPy makes of them, of Python's objects.
    """
    array = np.asarray(value)
    if array.dtype.kind != "O" or not array.size or not is_table(value):
        return array
    columns = [_numbers(column) for _, column in _columns(value)]
    numbers = [column for column in columns if column is not None]
    if len(numbers) < len(columns):
        return array
    return np.stack(numbers, axis=-1) if hasattr(value, "columns") else numbers[0]


def what_is_wrong(value: Any) -> str:
    """Names the columns of a table that are no numbers, and the way out; "" for no table."""
    if not is_table(value) or not hasattr(value, "columns"):
        return ""
    wrong = [f"{name!r} ({c.dtype})" for name, c in _columns(value) if _numbers(c) is None]
    if not wrong:
        return ""
    few = ", ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return (
        f" Columns without numbers: {few}. Leave them out, convert them with "
        "astype, or encode them: keras.utils.FeatureSpace does, as does pandas.get_dummies."
    )


def _columns(value: Any) -> Iterator[tuple[Any, Any]]:
    if not hasattr(value, "columns"):
        yield getattr(value, "name", None), value
    elif hasattr(value, "get_columns"):
        yield from ((column.name, column) for column in value.get_columns())
    else:
        yield from value.items()


def _numbers(column: Any) -> np.ndarray[Any, Any] | None:
    """A column as an array of numbers, or None."""
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array
    # A dtype of pandas that has missing values.
    if getattr(column.dtype, "kind", "O") in "biuf" and hasattr(column.dtype, "na_value"):
        return column.to_numpy(np.float64, na_value=np.nan)
    return None
