"""Elements of data sets as bytes: arrays as they lie in memory, and a description of the rest."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch

_ARRAY, _OBJECTS, _BYTES, _PLAIN = "array", "objects", "bytes", "plain"
_DICT, _TUPLE, _LIST = "dict", "tuple", "list"


def packed(element: Any) -> tuple[str, bytes]:
    """An element as its form, which many elements share, and its bytes.

    Raises:
        TypeError: for what is no array, number or text, nested in dictionaries, tuples and lists.

    >>> form, content = packed((np.zeros((2, 3), "uint8"), "a word"))
    >>> form
    '["tuple", [["array", "uint8", [2, 3]], ["plain", 8]]]'
    >>> unpacked(form, content)[1]
    'a word'
    """
    parts: list[bytes] = []
    form = json.dumps(_form_of(element, parts))
    return form, parts[0] if len(parts) == 1 else b"".join(parts)


def _form_of(element: Any, parts: list[bytes]) -> list[Any]:
    if isinstance(element, dict):
        if not all(isinstance(key, str) for key in element):
            raise TypeError("The keys of a dictionary must be texts to be kept in a file.")
        return [_DICT, {key: _form_of(item, parts) for key, item in element.items()}]
    if isinstance(element, (tuple, list)) and not hasattr(element, "_fields"):
        kind = _TUPLE if isinstance(element, tuple) else _LIST
        return [kind, [_form_of(item, parts) for item in element]]
    if isinstance(element, bytes):
        parts.append(element)
        return [_BYTES, len(element)]
    if element is None or type(element) in (str, int, float, bool):
        parts.append(json.dumps(element).encode())
        return [_PLAIN, len(parts[-1])]
    if dispatch.is_tensor(element) or isinstance(element, (np.ndarray, np.generic)):
        return _form_of_array(np.asarray(element), parts)
    raise TypeError(
        "Only arrays, numbers and text, in dictionaries, tuples and lists, can be kept in a file. "
        f"An element has a {type(element).__name__}; `cache()` keeps it in memory."
    )


def _form_of_array(array: np.ndarray[Any, Any], parts: list[bytes]) -> list[Any]:
    if array.dtype.kind in "OSU":
        texts = array.ravel().tolist()
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("An array of objects other than texts cannot be kept in a file.")
        parts.append(json.dumps(texts).encode())
        return [_OBJECTS, list(array.shape), len(parts[-1])]
    parts.append(array.tobytes())
    return [_ARRAY, array.dtype.name, list(array.shape)]


def size_of(form: str) -> int:
    """How many bytes an element of this form has."""
    return _sizes(json.loads(form))


def _sizes(form: list[Any]) -> int:
    kind, what, *more = form
    if kind == _DICT:
        return sum(map(_sizes, what.values()))
    if kind in (_TUPLE, _LIST):
        return sum(map(_sizes, what))
    if kind == _ARRAY:
        return math.prod(more[0]) * dtypes.numpy_dtype(what).itemsize
    return int(more[0] if kind == _OBJECTS else what)


def unpacked(form: str, content: bytes | bytearray) -> Any:
    """The element of a form and its bytes; arrays are in the memory of these bytes."""
    return _read(json.loads(form), memoryview(content), [0])


def _read(form: list[Any], content: memoryview, at: list[int]) -> Any:
    kind, what, *more = form
    if kind == _DICT:
        return {key: _read(item, content, at) for key, item in what.items()}
    if kind in (_TUPLE, _LIST):
        items = (_read(item, content, at) for item in what)
        return tuple(items) if kind == _TUPLE else list(items)
    begin = at[0]
    at[0] += _sizes(form)
    part = content[begin : at[0]]
    if kind == _ARRAY:
        return np.frombuffer(part, dtypes.numpy_dtype(what)).reshape(more[0])
    if kind == _BYTES:
        return bytes(part)
    value = json.loads(bytes(part))
    if kind == _PLAIN:
        return value
    array = np.empty(len(value), object)
    array[:] = value
    return array.reshape(what)
