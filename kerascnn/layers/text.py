"""Text on the host: arrays of Python's strings."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_text(x: Any) -> bool:
    """Tells whether this is text, an array of text, or a column or table of it from pandas."""
    if isinstance(x, (str, bytes)):
        return True
    if not isinstance(x, np.ndarray):
        if type(x).__module__.partition(".")[0] != "pandas":
            return False
        x = np.asarray(x)
    return x.dtype.kind in ("U", "S", "T") or (x.dtype.kind == "O" and _holds(x))


def _holds(x: np.ndarray[Any, Any]) -> bool:
    return bool(x.size) and isinstance(x.flat[0], (str, bytes))


def as_text(x: Any, encoding: str = "utf-8") -> np.ndarray[Any, Any]:
    """Text, lists and arrays of it as an array of Python's strings.

    Raises:
        TypeError: for anything else.
    """
    array = np.asarray(x, object) if isinstance(x, (str, bytes)) else np.asarray(x)
    if array.dtype.kind in "US" and array.dtype.kind != "S":
        return array.astype(object)
    flat = [t.decode(encoding) if isinstance(t, bytes) else t for t in array.ravel().tolist()]
    wrong = next((t for t in flat if not isinstance(t, str)), None)
    if wrong is not None:
        is_missing = isinstance(wrong, float) and wrong != wrong
        way_out = ". Fill missing values first, for example x.fillna('')" if is_missing else ""
        raise TypeError(
            f"Text is expected. Received: {wrong!r} (of type {type(wrong).__name__}){way_out}"
        )
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(array.shape)
