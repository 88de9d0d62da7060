"""Files as `torch.save` writes them, made without PyTorch, so that each part can be wrong."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any

import numpy as np

STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def numbers(values: Any) -> bytes:
    return b"(" + b"".join(number(int(n)) for n in values) + b"t"


def storage(key: str, dtype: str, count: int, view: bytes | None = None) -> bytes:
    kind = f"ctorch\n{STORAGES[dtype]}\n".encode()
    parts = text("storage") + kind + text(key) + text("cpu") + number(count)
    return b"(" + parts + (b"" if view is None else view) + b"tQ"


def tensor(where: bytes, offset: int, shape: Any, strides: Any) -> bytes:
    """A tensor that is a view of a storage."""
    hooks = b"ccollections\nOrderedDict\n)R"
    arguments = where + number(offset) + numbers(shape) + numbers(strides) + b"\x89" + hooks
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def pickled(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def state_dict(entries: dict[str, bytes]) -> bytes:
    """An OrderedDict, with the attribute that PyTorch's have."""
    content = b"".join(text(name) + value for name, value in entries.items())
    metadata = b"}" + text("_metadata") + b"}" + b"s"
    return b"ccollections\nOrderedDict\n)R(" + content + b"u" + metadata + b"b"


def whole(arrays: dict[str, Any], view: bytes | None = None) -> tuple[bytes, dict[str, bytes]]:
    """A pickle of a state dict, and the numbers of its storages by name."""
    entries, data = {}, {}
    for i, (name, array) in enumerate(arrays.items()):
        array = np.asarray(array)
        where = storage(str(i), array.dtype.name, array.size, view)
        strides = [n // array.itemsize for n in np.ascontiguousarray(array).strides]
        entries[name] = tensor(where, 0, array.shape, strides[: array.ndim])
        data[str(i)] = array.tobytes()
    return pickled(state_dict(entries)), data


def zipped(
    pickle: bytes,
    data: dict[str, bytes],
    order: bytes | None = b"little",
    method: int = zipfile.ZIP_STORED,
) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickle)
        if order is not None:
            archive.writestr("archive/byteorder", order)
        for key, content in data.items():
            archive.writestr(f"archive/data/{key}", content)
        archive.writestr("archive/version", b"3\n")
    return target.getvalue()


def old(pickle: bytes, data: dict[str, bytes], itemsizes: dict[str, int]) -> bytes:
    """The form of before PyTorch 1.6."""
    magic = b"\x8a\x0a" + 0x1950A86A20F9469CFC6C.to_bytes(10, "little")
    system = b"}" + text("little_endian") + b"\x88s"
    keys = b"](" + b"".join(text(key) for key in data) + b"e"
    numbers_of = b"".join(
        struct.pack("<q", len(content) // itemsizes[key]) + content for key, content in data.items()
    )
    parts = (pickled(magic), pickled(number(1001)), pickled(system), pickle, pickled(keys))
    return b"".join(parts) + numbers_of


def old_of(arrays: dict[str, Any]) -> bytes:
    pickle, data = whole(arrays, view=b"N")
    sizes = {str(i): np.asarray(array).itemsize for i, array in enumerate(arrays.values())}
    return old(pickle, data, sizes)


def zip_of(arrays: dict[str, Any]) -> bytes:
    return zipped(*whole(arrays))
