"""The reference of every op in NumPy, which kernels are compared with.

Each function takes the op's inputs as arrays (floating ones in float64) and the op's attributes as
keywords, and returns an array or a tuple of arrays. It follows the op's definition, is written for
clarity, and does not call kerascnn. Losses, random numbers and optimizers have files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Array = np.ndarray
REFERENCES: dict[str, Callable[..., Any]] = {}


def reference(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as the reference of the ops of these names."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            REFERENCES[name] = function
        return function

    return register


def numpy_dtype(name: str) -> np.dtype:
    """Returns the NumPy dtype for an op's dtype name; bfloat16 comes from ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def is_float_name(name: str) -> bool:
    return "float" in name


# ---- functions of one element, with broadcasting ----


def integer_power(a: Array, b: Array) -> Array:
    """Powers wrap around as in C++; a negative exponent gives the truncated quotient."""
    a, b = np.broadcast_arrays(a, b)
    positive = a ** np.maximum(b, 0)
    odd = b % 2 != 0
    quotient = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0))
    return np.where(b < 0, quotient, positive).astype(a.dtype)


def power(a: Array, b: Array) -> Array:
    return integer_power(a, b) if np.issubdtype(a.dtype, np.integer) else np.power(a, b)


def sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def erfc(x: Array) -> Array:
    return np.vectorize(math.erfc, otypes=[np.float64])(x)


def erfinv(x: Array) -> Array:
    """Halves an interval, and then takes Newton's steps, with erfc where erf would lose digits."""
    size = np.minimum(np.abs(x), 1.0)
    is_tail = size > 0.5

    def excess(y: Array) -> Array:
        """Returns erf(y) - size."""
        result = np.empty(np.shape(y))
        result[is_tail] = (1 - size[is_tail]) - erfc(y[is_tail])
        result[~is_tail] = erf(y[~is_tail]) - size[~is_tail]
        return result

    low, high = np.zeros(np.shape(x)), np.full(np.shape(x), 7.0)
    for _ in range(25):
        middle = (low + high) / 2
        is_below = excess(middle) < 0
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    # The error is 2e-7 here, and each step squares it.
    for _ in range(3):
        low = low - excess(low) * np.sqrt(np.pi) / 2 * np.exp(low * low)
    inside = np.where(np.abs(x) < 1, np.sign(x) * low, np.nan)
    return np.where(np.abs(x) == 1, np.sign(x) * np.inf, inside)


def mod(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.mod(a, b)
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))).astype(a.dtype)


def floor_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.floor_divide(a, b)
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))).astype(a.dtype)


def gelu(x: Array, approximate: bool) -> Array:
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_grad(gy: Array, x: Array, approximate: bool) -> Array:
    if approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
        return gy * (0.5 * (1 + np.tanh(inner)) + 0.5 * x * slope / np.cosh(inner) ** 2)
    density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    return gy * (0.5 * (1 + erf(x / math.sqrt(2))) + x * density)


def silu_grad(gy: Array, x: Array) -> Array:
    return gy * (sigmoid(x) + x * sigmoid(x) * sigmoid(-x))


def cast(x: Array, dtype: str) -> Array:
    """Floats become integers by truncation; the comparison accounts for the result's rounding."""
    if dtype == "bool":
        return x != 0
    if is_float_name(dtype):
        return x.astype(np.float64)
    return np.trunc(x).astype(np.int64).astype(dtype) if x.dtype.kind == "f" else x.astype(dtype)


ELEMENT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_not": np.logical_not,
    "where": np.where,
    "negative": np.negative,
    "absolute": np.absolute,
    "sign": np.sign,
    "reciprocal": lambda x: 1 / x,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "floor": np.floor,
    "clip": lambda x, min, max: np.clip(x, min, max).astype(x.dtype),
    "isfinite": np.isfinite,
    "cast": cast,
    "relu": lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)),
    "leaky_relu": lambda x, negative_slope: np.where(x > 0, x, negative_slope * x),
    "clipped_relu": lambda x, max_value: np.clip(x, 0, max_value),
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "gelu": gelu,
    "silu": lambda x: x * sigmoid(x),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "relu_grad": lambda gy, y: np.where(y > 0, gy, 0),
    "leaky_relu_grad": lambda gy, y, negative_slope: np.where(y > 0, gy, negative_slope * gy),
    "clipped_relu_grad": lambda gy, y, max_value: np.where((y > 0) & (y < max_value), gy, 0),
    "elu_grad": lambda gy, y, alpha: np.where(y > 0, gy, gy * (y + alpha)),
    "sigmoid_grad": lambda gy, y: gy * y * (1 - y),
    "tanh_grad": lambda gy, y: gy * (1 - y * y),
    "gelu_grad": gelu_grad,
    "silu_grad": silu_grad,
    "softplus_grad": lambda gy, x: gy * sigmoid(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "arcsinh": np.arcsinh,
    "arccosh": np.arccosh,
    "arctanh": np.arctanh,
    "expm1": np.expm1,
    "erf": erf,
    "erfc": erfc,
    "erfinv": erfinv,
    "ceil": np.ceil,
    "round": np.round,
    "arctan2": np.arctan2,
    "mod": mod,
    "floor_divide": floor_divide,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}
REFERENCES.update(ELEMENT_FUNCTIONS)

DTYPE_NAMES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
]
ELEMENT_PARAMETERS = {
    "clip": ["min", "max"],
    "leaky_relu": ["negative_slope"],
    "leaky_relu_grad": ["negative_slope"],
    "clipped_relu": ["max_value"],
    "clipped_relu_grad": ["max_value"],
    "elu": ["alpha"],
    "elu_grad": ["alpha"],
    "gelu": ["approximate"],
    "gelu_grad": ["approximate"],
}


# ---- softmax and reductions ----


@reference("softmax")
def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@reference("log_softmax")
def log_softmax(x, axis):
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


@reference("softmax_grad")
def softmax_grad(gy, y, axis):
    return y * (gy - (gy * y).sum(axis=axis, keepdims=True))


@reference("log_softmax_grad")
def log_softmax_grad(gy, y, axis):
    return gy - np.exp(y) * gy.sum(axis=axis, keepdims=True)


def _axes(axes: list[int]) -> tuple[int, ...] | None:
    return tuple(axes) if len(axes) else None


@reference("reduce_sum")
def reduce_sum(x, axes, keepdims):
    return x.sum(axis=_axes(axes), keepdims=keepdims, dtype=x.dtype)


@reference("reduce_mean")
def reduce_mean(x, axes, keepdims):
    return x.mean(axis=_axes(axes), keepdims=keepdims)


@reference("reduce_max")
def reduce_max(x, axes, keepdims):
    return x.max(axis=_axes(axes), keepdims=keepdims)


@reference("reduce_min")
def reduce_min(x, axes, keepdims):
    return x.min(axis=_axes(axes), keepdims=keepdims)


@reference("argmax")
def argmax(x, axis):
    return x.argmax(axis=axis).astype(np.int32)


@reference("argsort")
def argsort(x, axis, descending):
    if not descending:
        return np.argsort(x, axis=axis, kind="stable").astype(np.int32)
    # The axis is read backwards, so the last of equal elements comes first.
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return (x.shape[axis] - 1 - np.flip(backwards, axis)).astype(np.int32)


# ---- shape and indexing ----


@reference("barrier")
def barrier(x):
    return x


@reference("stop_gradient")
def stop_gradient(x):
    return x


@reference("reshape")
def reshape(x, shape):
    return x.reshape(shape)


@reference("transpose")
def transpose(x, permutation):
    return x.transpose(permutation)


@reference("broadcast_to")
def broadcast_to(x, shape):
    return np.broadcast_to(x, shape)


@reference("concatenate")
def concatenate(*inputs, axis):
    return np.concatenate(inputs, axis=axis)


def _positions(starts, sizes, strides):
    return np.ix_(
        *(
            start + stride * np.arange(size)
            for start, size, stride in zip(starts, sizes, strides, strict=True)
        )
    )


@reference("slice")
def slice_(x, starts, sizes, strides):
    return x[_positions(starts, sizes, strides)] if x.ndim else x


@reference("slice_grad")
def slice_grad(gy, input_shape, starts, sizes, strides):
    gx = np.zeros(input_shape, gy.dtype)
    gx[_positions(starts, sizes, strides)] = gy
    return gx


@reference("gather")
def gather(x, indices, axis):
    return np.take(x, np.clip(indices, 0, max(x.shape[axis] - 1, 0)), axis=axis)


@reference("gather_grad")
def gather_grad(gy, indices, axis, input_shape):
    gx = np.zeros(input_shape, gy.dtype)
    axis %= len(input_shape)
    moved = np.moveaxis(gx, axis, 0)
    flat = np.clip(indices, 0, input_shape[axis] - 1).reshape(-1)
    rows = gy.reshape(*input_shape[:axis], flat.size, *input_shape[axis + 1 :])
    np.add.at(moved, flat, np.moveaxis(rows, axis, 0))
    return gx


@reference("one_hot")
def one_hot(indices, depth, dtype):
    return (indices[..., None] == np.arange(depth)).astype(
        np.float64 if is_float_name(dtype) else dtype
    )


# ---- linear algebra, convolution, pooling ----


@reference("matmul")
def matmul(a, b, transpose_a, transpose_b):
    return (a.swapaxes(-1, -2) if transpose_a else a) @ (b.swapaxes(-1, -2) if transpose_b else b)


@reference("integer_matmul")
def integer_matmul(a, b, transpose_a, transpose_b):
    return matmul(a.astype(np.int32), b.astype(np.int32), transpose_a, transpose_b)


def activate(z: Array, activation: str, alpha: float) -> Array:
    if activation == "linear":
        return z
    names = ELEMENT_PARAMETERS.get(activation, [])
    value = alpha != 0 if activation == "gelu" else alpha
    return ELEMENT_FUNCTIONS[activation](z, **dict.fromkeys(names, value))


def before_activation(gy: Array, y: Array, activation: str, alpha: float) -> Array:
    """Returns the gradient before an activation with the outputs `y`."""
    if activation == "linear":
        return gy
    names = ELEMENT_PARAMETERS.get(f"{activation}_grad", [])
    return ELEMENT_FUNCTIONS[f"{activation}_grad"](gy, y, **dict.fromkeys(names, alpha))


def matmul_activation_grad(a, b, y, transpose_a, transpose_b, activation, activation_alpha):
    product = matmul(a, b, transpose_a, transpose_b)
    return before_activation(product, y, activation, activation_alpha)


@reference("dense")
def dense(x, kernel, bias=0.0, *, activation, activation_alpha):
    return activate(x @ kernel + bias, activation, activation_alpha)


def _padded(x: Array, padding, value: float = 0.0) -> Array:
    top, bottom, left, right = padding
    return np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=value)


def windows(shape, window, strides, padding, dilations=(1, 1)):
    """Yields each kernel position's index and the slices of the padded input that it meets."""
    covered = [(window[i] - 1) * dilations[i] + 1 for i in range(2)]
    padded = [shape[1] + padding[0] + padding[1], shape[2] + padding[2] + padding[3]]
    extent = [(padded[i] - covered[i]) // strides[i] + 1 for i in range(2)]
    for i in range(window[0]):
        for j in range(window[1]):
            rows, columns = (
                slice(
                    at * dilations[axis],
                    at * dilations[axis] + (extent[axis] - 1) * strides[axis] + 1,
                    strides[axis],
                )
                for axis, at in ((0, i), (1, j))
            )
            yield i, j, rows, columns


def _by_group(x: Array, groups: int) -> Array:
    return x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)


@reference("conv2d")
def conv2d(
    x, kernel, bias=0.0, *, strides, padding, dilations, groups, activation, activation_alpha
):
    height, width, _, filters = kernel.shape
    padded = _padded(x, padding)
    grouped = _by_group(kernel, groups)
    y = 0.0
    for i, j, rows, columns in windows(x.shape, (height, width), strides, padding, dilations):
        met = _by_group(padded[:, rows, columns], groups)
        y = y + np.einsum("nhwgc,cgk->nhwgk", met, grouped[i, j], optimize=True)
    return activate(y.reshape(*y.shape[:3], filters) + bias, activation, activation_alpha)


@reference("conv2d_dgrad")
def conv2d_dgrad(gy, kernel, *, input_shape, strides, padding, dilations, groups):
    height, width = kernel.shape[:2]
    padded = _padded(np.zeros(input_shape, gy.dtype), padding)
    grouped_kernel, grouped_gy = _by_group(kernel, groups), _by_group(gy, groups)
    for i, j, rows, columns in windows(input_shape, (height, width), strides, padding, dilations):
        part = np.einsum("nhwgk,cgk->nhwgc", grouped_gy, grouped_kernel[i, j], optimize=True)
        padded[:, rows, columns] += part.reshape(*gy.shape[:3], input_shape[3])
    return _inside(padded, input_shape, padding)


@reference("conv2d_wgrad")
def conv2d_wgrad(x, gy, *, kernel_shape, strides, padding, dilations, groups):
    padded = _padded(x, padding)
    grouped_gy = _by_group(gy, groups)
    gkernel = np.zeros(kernel_shape, x.dtype)
    for i, j, rows, columns in windows(x.shape, kernel_shape[:2], strides, padding, dilations):
        met = _by_group(padded[:, rows, columns], groups)
        part = np.einsum("nhwgc,nhwgk->cgk", met, grouped_gy, optimize=True)
        gkernel[i, j] = part.reshape(kernel_shape[2:])
    return gkernel


def _inside(padded: Array, input_shape, padding) -> Array:
    return padded[
        :, padding[0] : padding[0] + input_shape[1], padding[2] : padding[2] + input_shape[2]
    ]


def _pooled(padded: Array, window, strides) -> Array:
    """Returns the windows' elements in row-major order on a new last axis."""
    views = sliding_window_view(padded, window, axis=(1, 2))[:, :: strides[0], :: strides[1]]
    return views.reshape(*views.shape[:4], window[0] * window[1])


@reference("max_pool2d")
def max_pool2d(x, window, strides, padding):
    """The first maximum wins, padding never does, even over -inf; the first NaN wins over all."""
    elements = _pooled(_padded(x, padding, -np.inf), window, strides)
    inside = _pooled(_padded(np.ones(x.shape, bool), padding, False), window, strides)
    y = elements.max(axis=-1)
    wins = inside & ((elements == y[..., None]) | np.isnan(elements))
    index_dtype = np.uint8 if window[0] * window[1] <= 256 else np.int32
    return y, wins.argmax(axis=-1).astype(index_dtype)


@reference("max_pool2d_grad")
def max_pool2d_grad(gy, index, input_shape, window, strides, padding):
    padded = _padded(np.zeros(input_shape, gy.dtype), padding)
    for i, j, rows, columns in windows(input_shape, window, strides, padding):
        padded[:, rows, columns] += np.where(index == i * window[1] + j, gy, 0)
    return _inside(padded, input_shape, padding)


def _counts(input_shape, window, strides, padding) -> Array:
    inside = _padded(np.ones((1, *input_shape[1:3], 1)), padding)
    return sum(
        inside[:, rows, columns] for _, _, rows, columns in
        windows(input_shape, window, strides, padding)
    )  # fmt: skip


@reference("avg_pool2d")
def avg_pool2d(x, window, strides, padding):
    padded = _padded(x, padding)
    total = sum(
        padded[:, rows, columns]
        for _, _, rows, columns in windows(x.shape, window, strides, padding)
    )
    return total / _counts(x.shape, window, strides, padding)


@reference("avg_pool2d_grad")
def avg_pool2d_grad(gy, input_shape, window, strides, padding):
    padded = _padded(np.zeros(input_shape, gy.dtype), padding)
    share = gy / _counts(input_shape, window, strides, padding)
    for _, _, rows, columns in windows(input_shape, window, strides, padding):
        padded[:, rows, columns] += share
    return _inside(padded, input_shape, padding)


@reference("batch_norm")
def batch_norm(x, gamma, beta, epsilon):
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axis=axes), x.var(axis=axes)
    inverse = 1 / np.sqrt(variance + epsilon)
    return (x - mean) * inverse * gamma + beta, mean, variance, inverse


@reference("column_moments")
def column_moments(x, outer_axes=0):
    over = {"axis": tuple(range(outer_axes, x.ndim - 1)), "keepdims": outer_axes > 0}
    return x.mean(**over), x.var(**over)


@reference("batch_norm_grad")
def batch_norm_grad(gy, x, gamma, mean, inverse_stddev):
    axes = tuple(range(x.ndim - 1))
    normalized = (x - mean) * inverse_stddev
    ggamma, gbeta = (gy * normalized).sum(axis=axes), gy.sum(axis=axes)
    count = x.size // x.shape[-1]
    gx = gamma * inverse_stddev * (gy - gbeta / count - normalized * ggamma / count)
    return gx, ggamma, gbeta
