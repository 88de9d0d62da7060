"""Files and tensors of ONNX, read without trusting them.

A tensor's bytes are compared with its shape before anything is made of it, so that what is read
takes no more memory than the file. External data is read from files beside the model only.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from kerascnn.onnx_files.needed import require_onnx

# By ONNX's numbers of dtypes: the dtype here, and the field for elements that are not raw bytes.
_KINDS = {
    1: ("float32", "float_data"),
    2: ("uint8", "int32_data"),
    3: ("int8", "int32_data"),
    5: ("int16", "int32_data"),
    6: ("int32", "int32_data"),
    7: ("int64", "int64_data"),
    9: ("bool", "int32_data"),
    10: ("float16", "int32_data"),
    11: ("float64", "double_data"),
    16: ("bfloat16", "int32_data"),
}
_EXTERNAL = 1
# A file of Protocol Buffers has at most this many bytes.
_LARGEST = (1 << 31) - 1


def load(path: Path) -> Any:
    """The content of an ONNX file, without its external data.

    Raises:
        ImportError: without the package `onnx`.
        ValueError: for what is no ONNX file.
        OSError: where the file can't be read.
    """
    onnx = require_onnx()
    size = path.stat().st_size
    if size > _LARGEST:
        raise ValueError(f"{path} has {size} bytes; an ONNX file has at most {_LARGEST}.")
    content = path.read_bytes()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} is no ONNX file, or is damaged or cut off ({type(error).__name__})."
        ) from None
    if not model.HasField("graph"):
        raise ValueError(f"{path} is no ONNX file, or is damaged: it has no graph.")
    return model


def dtype_of(kind: int, what: str) -> str:
    """The dtype with a number of ONNX.

    Raises:
        ValueError: for one that is unknown here, such as strings.
    """
    if kind not in _KINDS:
        known = ", ".join(name for name, _ in _KINDS.values())
        raise ValueError(f"{what} has elements of ONNX's type {kind}; known are {known}.")
    return _KINDS[kind][0]


def to_array(tensor: Any, folder: Path | None) -> Any:
    """A tensor of a file as an array.

    Args:
        tensor: A TensorProto.
        folder: Where external data may be, or None.

    Raises:
        ValueError: where its bytes don't fit its shape, or external data lies elsewhere.
    """
    what = f"The tensor '{tensor.name[:200]}'"
    dtype = dtype_of(tensor.data_type, what)
    numpy_dtype = _numpy_dtype(dtype)
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape) or len(shape) > 32:
        raise ValueError(f"{what} has the shape {shape[:40]}, which no array has.")
    wanted = math.prod(shape) * numpy_dtype.itemsize
    if tensor.data_location == _EXTERNAL:
        content = _external(tensor, wanted, folder, what)
    elif tensor.HasField("raw_data"):
        content = tensor.raw_data
    else:
        return _from_field(tensor, dtype, shape, what)
    if len(content) != wanted:
        raise ValueError(f"{what} of shape {shape} takes {wanted} bytes, and has {len(content)}.")
    little = numpy_dtype.newbyteorder("<") if dtype != "bfloat16" else numpy_dtype
    if dtype == "bool":
        return (np.frombuffer(content, "uint8") != 0).reshape(shape)
    return np.frombuffer(content, little).reshape(shape).astype(numpy_dtype)


def _numpy_dtype(dtype: str) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def _from_field(tensor: Any, dtype: str, shape: tuple[int, ...], what: str) -> Any:
    elements = getattr(tensor, _KINDS[tensor.data_type][1])
    if len(elements) != math.prod(shape):
        raise ValueError(
            f"{what} of shape {shape} takes {math.prod(shape)} elements, and has {len(elements)}."
        )
    if dtype in ("float16", "bfloat16"):  # as bits
        bits = np.array(elements, "int64")
        return (bits & 0xFFFF).astype("uint16").view(_numpy_dtype(dtype)).reshape(shape)
    wide = np.array(elements, "int64" if "int" in dtype or dtype == "bool" else "float64")
    with np.errstate(all="ignore"):
        return wide.astype(dtype).reshape(shape)


def _external(tensor: Any, wanted: int, folder: Path | None, what: str) -> bytes:
    """Bytes of a file in the folder of the model, at most as many as the tensor takes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    name = entries.get("location", "")
    if folder is None:
        raise ValueError(f"{what} has external data, which is read for weights only.")
    path = _inside(folder, name, what)
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or wanted)
    except ValueError:
        raise ValueError(f"{what}: the place in its external data is no number.") from None
    if length != wanted or offset < 0:
        raise ValueError(
            f"{what} takes {wanted} bytes; its external data is said to be {length} from {offset}."
        )
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise ValueError(
            f"{what}: its external data '{name[:200]}' can't be read ({error})."
        ) from None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or offset + wanted > status.st_size:
            raise ValueError(
                f"{what} takes {wanted} bytes from {offset} on of '{name[:200]}', which is no file "
                "of that size."
            )
        file.seek(offset)
        return file.read(wanted)


def _inside(folder: Path, name: str, what: str) -> Path:
    """The path of a file in a folder, or in a folder in it, through no link."""
    parts = PurePosixPath(name).parts
    windows = PureWindowsPath(name)
    wrong = windows.is_absolute() or windows.drive or "\\" in name or "\0" in name
    if wrong or not parts or name.startswith("/") or any(p in ("..", ".") for p in parts):
        raise ValueError(
            f"{what} has its data in {name[:200]!r}, which does not lie in the folder of the "
            "model. Nothing is read from elsewhere."
        )
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise ValueError(
                f"{what} has its data behind the link {name[:200]!r}; none is followed."
            )
    return path
