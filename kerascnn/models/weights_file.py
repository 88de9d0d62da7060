"""Weights of a model in one file of the safetensors format.

The file begins with the length of a header (8 bytes, little endian), then the header in JSON (name,
dtype, shape and place of each array), then the arrays. Nothing in it can run code, and what the
header claims is checked against the file's size before memory is taken. Arrays are named by the
layer's place in the model (`layers/conv2d_1/vars/0`), not by automatic names, which differ from one
session to the next. Files are written beside their target and then moved onto it, so that a crash
leaves the old file whole.
Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import os
import struct
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from kerascnn import dtypes, naming
from kerascnn.layers.layer import Layer
from kerascnn.saving.atomic import replacing
from kerascnn.seed_generators import SeedGenerator
from kerascnn.system_errors import naming_file
from kerascnn.variable import Variable

_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_ENDING = ".safetensors"
# Arrays of an exported graph that are no weights have names with this in front.
GRAPH = "graph/"
_MAX_HEADER = 100 * 1024 * 1024
_MAX_RANK = 64  # of NumPy's arrays


def named_variables(layer: Layer, prefix: str = "") -> Iterator[tuple[str, Variable, Layer]]:
    """All weights below a layer (and the states of its own generators), with lasting names.

    Yields:
        The name in files, the variable, and the layer that it belongs to.
    """
    yield from _named(layer, prefix, set())


def _named(layer: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Variable, Layer]]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    generators = [generator.state for generator in layer._owned(SeedGenerator)]
    for index, variable in enumerate([*layer._own_variables(), *generators]):
        yield f"{prefix}vars/{index}", variable, layer
    counts: Counter[str] = Counter()
    for child in layer._sublayers():
        kind = naming.to_snake_case(type(child).__name__)
        number = counts[kind]
        counts[kind] += 1
        name = f"{kind}_{number}" if number else kind
        yield from _named(child, f"{prefix}layers/{name}/", seen)


def save(model: Any, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
    """See `Model.save_weights`."""
    path = _checked_path(filepath)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Pass overwrite=True to replace it.")
    unbuilt = [layer.name for layer in model._flatten_layers() if not layer.built]
    if unbuilt:
        raise ValueError(
            f"Model '{model.name}' has layers without weights yet: {unbuilt}. Call it on data (or "
            "build(input_shape)) before saving."
        )
    write(path, {name: variable.numpy() for name, variable, _ in named_variables(model)})


def load(model: Any, filepath: str | os.PathLike[str], skip_mismatch: bool = False) -> None:
    """See `Model.load_weights`."""
    path = _checked_path(filepath)
    stored = {n: a for n, a in read(path).items() if not n.startswith(GRAPH)}
    entries = list(named_variables(model))
    if not entries and stored:
        raise ValueError(
            f"Model '{model.name}' has no weights yet to load {path} into. Call it on data (or "
            "build(input_shape)) first."
        )
    problems: list[str] = []
    fitting: list[tuple[Variable, np.ndarray[Any, Any]]] = []
    for name, variable, layer in entries:
        array = stored.pop(name, None)
        where = f"layer '{layer.name}' ({type(layer).__name__}), weight '{variable.name}'"
        if array is None:
            problems.append(f"{where}: the file has no {name}")
        elif array.shape != variable.shape:
            problems.append(f"{where}: expected shape {variable.shape}, found {array.shape}")
        else:
            fitting.append((variable, array))
    problems += [f"the file's {name} belongs to no layer of the model" for name in stored]
    if problems and not skip_mismatch:
        shown = "; ".join(problems[:5]) + ("; ..." if len(problems) > 5 else "")
        raise ValueError(
            f"The weights in {path} do not fit model '{model.name}', which is left as it was: "
            f"{shown}. Pass skip_mismatch=True to load those that fit."
        )
    for problem in problems:
        warnings.warn(f"load_weights skipped something: {problem}", stacklevel=3)
    for variable, array in fitting:
        variable.assign(array)


def _checked_path(filepath: str | os.PathLike[str]) -> Path:
    path = Path(filepath)
    if not path.name.endswith(_ENDING):
        raise ValueError(
            "Weights are kept in files whose name ends in '.weights.safetensors' (or "
            f"'.safetensors'). Received: filepath={str(filepath)!r}"
        )
    return path


def write(
    path: Path, arrays: dict[str, np.ndarray[Any, Any]], metadata: dict[str, str] | None = None
) -> None:
    """Writes arrays (and texts by name) to a safetensors file, by way of a file beside it."""
    header: dict[str, Any] = {"__metadata__": {"format": "kerascnn", **(metadata or {})}}
    offset = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as beside, open(beside, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a safetensors file.

    Raises:
        ValueError: for a file that is not one, or is damaged.
    """
    size = path.stat().st_size
    with naming_file(path), open(path, "rb") as file:
        header, length = _read_header(file, path, size)
        available = size - 8 - length
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        left = available
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            dtype, shape, begin, end = _checked_entry(path, name, entry, available)
            left -= end - begin
            if left < 0:  # small files would fill the memory with copies of the same bytes
                raise ValueError(
                    f"{path}: its arrays take more than the {available} bytes that there are; some "
                    "lie on top of others."
                )
            file.seek(8 + length + begin)
            data = file.read(end - begin)
            arrays[name] = np.frombuffer(data, dtypes.numpy_dtype(dtype)).reshape(shape)
    return arrays


def read_metadata(path: Path) -> dict[str, str]:
    """The texts by name that a safetensors file holds beside its arrays.

    Raises:
        ValueError: for a file that is not one, or is damaged.
    """
    with naming_file(path), open(path, "rb") as file:
        metadata = _read_header(file, path, path.stat().st_size)[0].get("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError(f"{path}: its metadata is damaged.")
    return metadata


def _read_header(file: BinaryIO, path: Path, size: int) -> tuple[dict[str, Any], int]:
    """Returns the content of the header, and its length."""
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= min(size - 8, _MAX_HEADER):
        raise ValueError(f"{path} is no safetensors file, or is cut off.")
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its header is damaged ({error}).") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: its header is damaged.")
    return header, length


def _checked_entry(
    path: Path, name: str, entry: Any, available: int
) -> tuple[str, tuple[int, ...], int, int]:
    """Checks an array's dtype, shape, begin and end, and returns them."""
    try:
        dtype = _DTYPES[entry["dtype"]]
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if any(type(n) is not int for n in (*shape, begin, end)):  # 1e999, 2.0, "3" and true
            raise ValueError("a size or a place is no whole number")
        if len(shape) > _MAX_RANK:
            raise ValueError(f"{len(shape)} axes, of which an array has up to {_MAX_RANK}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: the entry {name!r} of its header is damaged ({error})."
        ) from error
    count = 1
    for n in shape:
        count *= n
    expected = count * dtypes.ITEMSIZE[dtype]
    if min((*shape, begin), default=0) < 0 or end - begin != expected or end > available:
        raise ValueError(
            f"{path}: the array {name!r} should take {expected} bytes, but the file gives it "
            f"{end - begin} and ends after {available}; it is damaged or cut off."
        )
    return dtype, shape, begin, end
