"""Each kind of source of a custom op has a row here, with its meaning in NumPy."""

from __future__ import annotations

import math

import numpy as np

from kerascnn import ops

from .case import Bad, Case, large, normal, row, zeros
from .reference import reference

CUSTOM = "custom_op"
MEANING = {}  # maps the key of a definition to its meaning in NumPy


@reference(CUSTOM)
def custom_op(*inputs, op):
    return MEANING[op](*inputs)


def _of(defined, meaning):
    MEANING[defined._key] = meaning
    return defined._key


SIGMOID = _of(
    ops.custom_op(
        "tested_soft_sigmoid",
        forward="x / sqrt(1 + x * x)",
        gradient="dy / ((1 + x * x) * sqrt(1 + x * x))",
    ),
    lambda x: x / np.sqrt(1 + x * x),
)
BLEND = _of(
    ops.custom_op(
        "tested_blend",
        inputs=("a", "b", "t"),
        forward="a + (b - a) * t",
        gradient=("dy * (1 - t)", "dy * t", "dy * (b - a)"),
    ),
    lambda a, b, t: a + (b - a) * t,
)
POLAR = _of(
    ops.custom_op(
        "tested_polar",
        inputs=("r", "angle"),
        outputs=("x", "y"),
        forward=("r * cos(angle)", "const real s = sin(angle);\nreturn r * s;"),
        gradient=(
            "dx * cos(angle) + dy * sin(angle)",
            "r * (dy * cos(angle) - dx * sin(angle))",
        ),
    ),
    lambda r, angle: (r * np.cos(angle), r * np.sin(angle)),
)

_ROW = "const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;"
_SUMS = """
  real sum = 0;
  for (int64_t i = 0; i < columns; ++i) {
    const real value = real(x[row * columns + i]);
    sum += value * value;
  }
  y[row] = sum;
"""
_SPREAD = """
  for (int64_t i = 0; i < columns; ++i) {
    dx[row * columns + i] = 2 * real(dy[row]) * real(x[row * columns + i]);
  }
"""


def _rows_of(shape):
    return math.prod(shape[:-1])


def _squares(name, **cpu):
    """Defines sums of squares along the last axis, computed by kernels."""
    own = {
        "sizes": lambda x, *_: (_rows_of(x), x[-1]),
        "elements": lambda x, *_: _rows_of(x),
        "threads": 64,
    }
    return ops.custom_op(
        name,
        forward=ops.KernelSource(
            "__global__ void squares(const x_t* x, y_t* y, int64_t rows, int columns) {\n"
            f"  {_ROW}\n  if (row >= rows) return;\n{_SUMS}}}",
            **own,
        ),
        gradient=ops.KernelSource(
            "template <typename T>\n"
            "__global__ void spread(const T* x, const y_t*, const dy_t* dy, T* dx,\n"
            f"                       int64_t rows, int64_t columns) {{\n  {_ROW}\n"
            f"  if (row >= rows) return;\n{_SPREAD}}}",
            name="spread<x_t>",
            **own,
        ),
        output_shape=lambda x: x[:-1],
        **cpu,
    )


def _in_numpy(x):
    return np.square(x.astype("float64")).sum(axis=-1)


SQUARES = _of(
    _squares(
        "tested_squares",
        cpu=_in_numpy,
        cpu_gradient=lambda x, y, dy: 2 * x.astype("float64") * dy.astype("float64")[..., None],
    ),
    _in_numpy,
)
SQUARES_IN_CPP = _of(
    _squares(
        "tested_squares_in_cpp",
        cpu="void squares(const x_t* x, y_t* y, int64_t rows, int64_t columns) {\n"
        f"  for (int64_t row = 0; row < rows; ++row) {{\n{_SUMS}  }}\n}}",
        cpu_gradient="void spread(const x_t* x, const y_t*, const dy_t* dy, dx_t* dx,\n"
        "            int64_t rows, int64_t columns) {\n"
        f"  for (int64_t row = 0; row < rows; ++row) {{\n{_SPREAD}  }}\n}}",
    ),
    _in_numpy,
)


def _draws(op, *shapes):
    return lambda rng: ([normal(rng, *shape) for shape in shapes], {"op": op})


CASES: list[Case] = [
    row(CUSTOM, "sigmoid", _draws(SIGMOID, (5, 7))),
    row(CUSTOM, "sigmoid_aligned", _draws(SIGMOID, (64, 128))),
    row(CUSTOM, "sigmoid_odd", _draws(SIGMOID, (3, 343, 33))),
    row(CUSTOM, "sigmoid_scalar", _draws(SIGMOID, ())),
    row(CUSTOM, "sigmoid_empty", _draws(SIGMOID, (0, 3))),
    row(CUSTOM, "blend", _draws(BLEND, (4, 9), (4, 9), (4, 9))),
    row(CUSTOM, "blend_by_one", _draws(BLEND, (33, 31), (33, 31), (1, 1))),
    row(CUSTOM, "blend_from_one", _draws(BLEND, (), (6, 8), (6, 8))),
    row(CUSTOM, "two_results", _draws(POLAR, (17, 5), (17, 5))),
    row(CUSTOM, "kernel", _draws(SQUARES, (13, 21))),
    row(CUSTOM, "kernel_of_many_blocks", _draws(SQUARES, (3, 43, 7))),
    row(CUSTOM, "kernel_empty", _draws(SQUARES, (0, 7))),
    row(CUSTOM, "kernel_in_cpp", _draws(SQUARES_IN_CPP, (13, 21))),
    large(CUSTOM, _draws(SIGMOID, (65_600 * 3,))),
    large(CUSTOM, _draws(SQUARES_IN_CPP, (65_600, 3)), "large_kernel"),
]

BAD: list[Bad] = [
    Bad(CUSTOM, [zeros(2)], {"op": "nothing#0"}, ValueError, 'nothing was defined under "nothing'),
    Bad(CUSTOM, [zeros(2)], {"op": BLEND}, ValueError, "expected 3 inputs (a, b, t), received 1"),
    Bad(CUSTOM, [zeros(2, dtype="int32")], {"op": SIGMOID}, TypeError, "input x must be one of"),
    Bad(
        CUSTOM,
        [zeros(2), zeros(2), zeros(2, dtype="float64")],
        {"op": BLEND},
        TypeError,
        "all inputs must have one dtype",
    ),
    Bad(
        CUSTOM,
        [zeros(3, 2), zeros(3, 2), zeros(2)],
        {"op": BLEND},
        ValueError,
        "input t has shape (2,) where the result has (3, 2)",
    ),
]
