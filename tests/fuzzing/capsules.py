"""DLPack capsules and `__array_interface__` with wrong fields.

A capsule is an address, which nobody can check; what is changed here are shapes, strides, types and
devices. A tensor is read only where it fits the memory that is there.
"""

from __future__ import annotations

import ctypes
import math
from random import Random
from typing import Any

import numpy as np

_ROOM = 4096
_SIZES = (0, 1, 2, 3, 5, -1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
# What capsules point to lives as long as the process.
_kept: list[Any] = []


def draw(rng: Random) -> dict[str, Any]:
    """The fields of a capsule, most of them right."""
    rank = rng.choice([0, 1, 2, 3, 4])
    shape = [rng.choice([0, 1, 2, 3, 5]) for _ in range(rank)]
    strides: list[int] | None = [math.prod(shape[i + 1 :]) for i in range(rank)]
    fields = {
        "ndim": rank,
        "shape": shape,
        "strides": rng.choice([strides, None]),
        "type": rng.choice([(2, 32, 1), (2, 64, 1), (0, 8, 1), (1, 8, 1), (0, 32, 1), (6, 8, 1)]),
        "device": [1, 0],
        "byte_offset": rng.choice([0, 0, 64]),
        "null": False,
        "name": rng.choice(["dltensor", "dltensor_versioned"]),
        "version": [1, 0],
        "flags": rng.choice([0, 1, 2]),
    }
    for _ in range(rng.choice([0, 1, 1, 2])):
        kind = rng.randrange(9)
        if kind == 0 and rank:
            shape[rng.randrange(rank)] = rng.choice(_SIZES)
        elif kind == 1:
            fields["strides"] = [rng.choice(_SIZES) for _ in shape]
        elif kind == 2:
            fields["type"] = (
                rng.randrange(20),
                rng.choice([0, 1, 4, 8, 7, 64, 255]),
                rng.choice([0, 1, 4, 65535]),
            )
        elif kind == 3:
            fields["device"] = [
                rng.choice([0, 1, 2, 3, 4, 10, 13, 14, 99, -1]),
                rng.choice([0, 1, -1, 2**31 - 1]),
            ]
        elif kind == 4:
            fields["ndim"] = rng.choice([-1, -(2**31), 65, 128])
        elif kind == 5:
            fields["byte_offset"] = rng.choice([1, 3, 2**63, 2**64 - 1])
        elif kind == 6:
            fields["null"] = True
        elif kind == 7:
            fields["version"] = rng.choice([[0, 8], [1, 99], [2, 0], [2**32 - 1, 0]])
            fields["flags"] = rng.choice([2**64 - 1, 4, 2**63])
        else:
            fields["name"] = rng.choice(["used_dltensor", "used_dltensor_versioned", "x", ""])
    return fields


def _capsule(fields: dict[str, Any], memory: Any) -> Any:
    def numbers(values: list[int]) -> Any:
        return (ctypes.c_int64 * 128)(*values, *[1] * (128 - len(values)))

    shape = numbers(fields["shape"])
    strides = None if fields["strides"] is None else numbers(fields["strides"])
    # a name that says neither is given the structure without a version
    managed = _ManagedVersioned() if "versioned" in fields["name"] else _Managed()
    if isinstance(managed, _ManagedVersioned):
        managed.major, managed.minor = fields["version"]
        managed.flags = fields["flags"]
    tensor = managed.tensor
    tensor.data = None if fields["null"] else memory.ctypes.data
    tensor.device_type, tensor.device_id = fields["device"]
    tensor.ndim = fields["ndim"]
    tensor.code, tensor.bits, tensor.lanes = fields["type"]
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    if strides is not None:
        tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    tensor.byte_offset = fields["byte_offset"]
    name = fields["name"].encode()
    _kept.append((managed, shape, strides, memory, name))
    return _new_capsule(ctypes.addressof(managed), name, None)


def _extent(fields: dict[str, Any]) -> int | None:
    """How many bytes from the memory's begin a capsule reaches; None before its begin."""
    width = fields["type"][1] * fields["type"][2] // 8
    if math.prod(fields["shape"]) == 0:
        return 0
    strides = fields["strides"]
    if strides is None:
        last = math.prod(fields["shape"]) - 1
    else:
        if any(s < 0 and n > 1 for s, n in zip(strides, fields["shape"], strict=True)):
            return None
        last = sum(s * (n - 1) for s, n in zip(strides, fields["shape"], strict=True))
    return (last + 1) * width + fields["byte_offset"]


def run(fields: dict[str, Any]) -> tuple[str, str]:
    """Returns what came of a capsule, and what is wrong with it."""
    import kerascnn

    memory = np.frombuffer(bytes(range(256)) * (_ROOM // 256) + bytes(64), np.uint8).copy()
    extent = _extent(fields) if fields["ndim"] == len(fields["shape"]) else None
    fits = extent is not None and extent <= _ROOM and not fields["null"]
    is_aligned = fields["byte_offset"] % 8 == 0
    if not fits and not is_aligned:
        return "not tried", ""  # a copy would read what is not there
    errors = (ValueError, TypeError, BufferError, kerascnn.DeviceError)
    try:
        tensor = kerascnn.from_dlpack(_capsule(fields, memory))
    except errors as error:
        return type(error).__name__, "" if str(error) else "an error without a message"
    if fields["ndim"] != len(fields["shape"]) or min(fields["shape"], default=0) < 0:
        return "taken", f"a tensor of shape {tensor.shape} and rank {fields['ndim']}"
    if tuple(tensor.shape) != tuple(fields["shape"]):
        return "taken", f"the shape {tensor.shape}"
    if fits and max(fields["shape"], default=0) < 2**31:  # NumPy has no more beside a 0
        values = tensor.numpy()
        if values.shape != tuple(fields["shape"]):
            return "read", f"the shape {values.shape}"
        del values
    return "read" if fits else "taken", ""


def draw_interface(rng: Random) -> dict[str, Any]:
    """The fields of an `__array_interface__`."""
    fields: dict[str, Any] = {"shape": [2, 3], "typestr": "<f4", "version": 3}
    for _ in range(rng.choice([0, 1, 1, 2])):
        key = rng.choice(["shape", "typestr", "version", "strides", "data"])
        fields[key] = rng.choice(
            {
                "shape": [[-1, 2], [2**62, 4], [], [2.5], None, "x", [10**9, 10**9], [0, 2**62]],
                "typestr": ["<f8", ">f4", "|O", "<f3", "", None, "<U4", "|V4", "<c8", "<M8[ns]"],
                "version": [2, 99, None, "x"],
                # NumPy, which reads these, believes strides whose extent overflows
                "strides": [[12, 4], [4], [48, 4], [-12, 4], "x", [1.5, 2]],
                "data": [None, [0], "x", 7],
            }[key]
        )
    return fields


def run_interface(fields: dict[str, Any]) -> tuple[str, str]:
    """An object with that interface, over a buffer whose size NumPy checks, to a tensor."""
    import kerascnn

    def tuples(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    interface = {key: tuples(value) for key, value in fields.items()}
    interface.setdefault("data", bytearray(24))
    holder = type("Holder", (), {"__array_interface__": interface})()
    try:
        value = kerascnn.ops.convert_to_tensor(holder)
    except (ValueError, TypeError, BufferError, NotImplementedError, MemoryError) as error:
        return type(error).__name__, "" if str(error) else "an error without a message"
    value.numpy()
    return "read", ""
