"""How results of regions are compared with those of their ops one by one."""

from __future__ import annotations

import numpy as np


def as_bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


def assert_same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(as_bits(a), as_bits(b))


def assert_close(a, b):
    """Compares results whose sums may have been added up in another order.

    With n terms a sum's rounding error is less than sqrt(n) units in the last place of its terms'
    size, in all but one of a million cases. 64 is enough for 4,096 terms, and for longer rows too,
    because these are summed in many short parts. Results of 16 bits may be rounded to a neighbour.
    """
    assert a.dtype == b.dtype and a.shape == b.shape
    places = {8: 2.0**-52, 4: 2.0**-23}.get(a.dtype.itemsize, 2.0**-23) * 64
    if str(a.dtype) in ("float16", "bfloat16"):
        places = {"float16": 2.0**-9, "bfloat16": 2.0**-6}[str(a.dtype)]
    wide = b.astype("float64")
    scale = np.abs(wide).max(initial=1.0)
    np.testing.assert_allclose(a.astype("float64"), wide, rtol=places, atol=places * scale)
