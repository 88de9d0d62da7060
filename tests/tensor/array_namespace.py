"""Tensors under the names of the array API, as far as the standard's own tests of DLPack need them.

With a checkout of https://github.com/data-apis/array-api-tests and its submodule, in its folder:

    pip install -r requirements.txt
    sed -i '/in complex_dtypes/s/x\\[1\\]$/x[1], default=(None,)/' array_api_tests/dtype_helpers.py
    PYTHONPATH=<this folder> ARRAY_API_TESTS_MODULE=array_namespace ARRAY_API_TESTS_SKIP_DTYPES=\\
        uint16,uint32,uint64,complex64,complex128 pytest array_api_tests/test_dlpack.py

The second line lets the tests go on without complex numbers; it changes no test. On a machine with
a GPU set KERASCNN_DEVICE=cpu: one of the tests asks for memory of the host without a copy, and the
standard's answer for an array on a GPU is a BufferError.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import kerascnn as keras
from kerascnn import ops

__array_api_version__ = "2025.12"

bool = "bool"
int8, int16, int32, int64, uint8 = "int8", "int16", "int32", "int64", "uint8"
float32, float64 = "float32", "float64"
pi, e, inf, nan, newaxis = np.pi, np.e, np.inf, np.nan, None

all, any, isnan, isfinite, isinf, equal = (
    ops.all,
    ops.any,
    ops.isnan,
    ops.isfinite,
    ops.isinf,
    ops.equal,
)
reshape, broadcast_to, astype = ops.reshape, ops.broadcast_to, ops.cast
iinfo, finfo = np.iinfo, np.finfo
from_dlpack = keras.from_dlpack


class Info:
    """What `__array_namespace_info__` returns."""

    def devices(self) -> list[str]:
        return [name for name, is_usable, _ in keras._core.list_devices() if is_usable]


def __array_namespace_info__() -> Info:
    return Info()


def asarray(x: Any, dtype: str | None = None) -> Any:
    return ops.convert_to_tensor(x, dtype=dtype)


def zeros(shape: int | Sequence[int], dtype: str | None = None, device: str | None = None) -> Any:
    with keras.device(device) if device else contextlib.nullcontext():
        return ops.zeros(shape, dtype or float32)


empty = zeros


def ones(shape: int | Sequence[int], dtype: str | None = None) -> Any:
    return ops.ones(shape, dtype or float32)


def full(shape: int | Sequence[int], value: builtins.float, dtype: str | None = None) -> Any:
    return ops.full(shape, value, dtype)
