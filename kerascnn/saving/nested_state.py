"""Nested lists and dictionaries of values and arrays, in one safetensors file with a checksum.

The arrays are the file's arrays. Everything else, with their names in their places, is JSON in the
file's metadata. Reading it runs no code and believes no size; see `models/weights_file.py`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.models import weights_file

_ARRAY = "__array__"  # the key of a dictionary that stands for an array
_VERSION = "1"


def write(path: Path, state: dict[str, Any]) -> None:
    """Writes a state, by way of a file beside it.

    Args:
        path: The file.
        state: Lists, tuples (which are read as lists) and dictionaries with text as keys, of
            numbers, texts, booleans, None and arrays.

    Raises:
        TypeError: for anything else; says where it is.
        OSError: where the file can't be written. What was there is still there then.
    """
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(_packed(state, "state", arrays))
    metadata = {"state": text, "version": _VERSION, "sha256": _checksum(text, arrays)}
    weights_file.write(path, arrays, metadata)


def read(path: Path) -> dict[str, Any]:
    """The state in a file that `write` has written.

    Raises:
        OSError: where it can't be read.
        ValueError: where it is damaged, or was written by another version of kerascnn.
    """
    metadata = weights_file.read_metadata(path)
    if metadata.get("version") != _VERSION:
        raise ValueError(
            f"{path} was written by a version of kerascnn whose states have another form "
            f"({metadata.get('version')}, this one reads {_VERSION})."
        )
    arrays = weights_file.read(path)
    text = metadata.get("state", "")
    if metadata.get("sha256") != _checksum(text, arrays):
        raise ValueError(f"{path} is damaged: its checksum is of other content.")
    try:
        state = _unpacked(json.loads(text), arrays)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(state, dict):
        raise ValueError(f"{path} is damaged: it holds no dictionary.")
    return state


def _packed(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        if _ARRAY in value or not all(isinstance(key, str) for key in value):
            raise TypeError(f"{where} can't be kept: the keys of its dictionaries must be texts.")
        return {key: _packed(item, f"{where}/{key}", arrays) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packed(item, f"{where}/{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in dtypes.ITEMSIZE:
        arrays[where] = np.asarray(value)
        return {_ARRAY: where}
    raise TypeError(
        f"{where} can't be kept: it must be a number, text, None, a NumPy array of numbers, or a "
        f"list or dictionary of them. Received: {type(value).__name__}"
    )


def _unpacked(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return arrays[value[_ARRAY]]
    return {key: _unpacked(item, arrays) for key, item in value.items()}


def _checksum(text: str, arrays: dict[str, np.ndarray]) -> str:
    found = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.name} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
