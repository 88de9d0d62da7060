"""float16 in C++ of custom ops where the compiler has no type for it: conversions are exact."""

import os

from .helpers import run_python

PROGRAM = """
import numpy as np
from kerascnn import ops

def convert(name, dtype):
    source = "void f(const x_t* x, y_t* y, int64_t n) {"
    source += " for (int64_t i = 0; i < n; ++i) y[i] = y_t(float(x[i])); }"
    return ops.custom_op(name, cpu=source, output_dtype=dtype)

every_half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
widened = convert("widen", "float32")(every_half).numpy()
np.testing.assert_array_equal(widened, every_half.astype(np.float32))

# The halves themselves, what lies in the middle of two of them, and the floats beside that.
halves = np.sort(widened[np.isfinite(widened)])
middles = (halves[1:] + halves[:-1]) / 2
edges = np.float32([65519.996, 65520, 1e30, np.inf, np.nan, 2.0**-25, 2.0**-26, 1e-45])
floats = [halves, middles, edges, -edges]
floats += [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
floats = np.concatenate(floats).astype(np.float32)
with np.errstate(over="ignore"):
    wanted = floats.astype(np.float16)
narrowed = convert("narrow", "float16")(floats).numpy()
np.testing.assert_array_equal(narrowed, wanted)
np.testing.assert_array_equal(np.signbit(narrowed), np.signbit(wanted))
print("compared", len(every_half), len(floats))
"""


def test_float16_without_a_type_of_the_compiler():
    """As with GCC before 13 on aarch64, and before 12 elsewhere."""
    compiler = os.environ.get("CXX") or "c++"
    done = run_python(PROGRAM, KERASCNN_DEVICE="cpu", CXX=f"{compiler} -U__FLT16_MAX__")
    assert done.stdout.startswith("compared 65536 ")
