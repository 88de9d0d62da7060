"""Calls of the fusions that join a convolution, its activation and the max pooling after it."""

from __future__ import annotations

import numpy as np

from .case import FLOATS, few_values, large, normal, row
from .reference import REFERENCES
from .reference_conv_pooling import conv2d_max_pool2d

FORWARD = "conv2d_max_pool2d"
# The gradients of these follow from their outputs, and the parameters are exact in every dtype.
_ACTIVATIONS = {
    "linear": 0.0,
    "relu": 0.0,
    "leaky_relu": 0.25,
    "clipped_relu": 1.0,
    "elu": 0.5,
    "sigmoid": 0.0,
    "tanh": 0.0,
}
_ROUNDED = ("elu", "sigmoid", "tanh")


def _layer(
    x, kernel, pool=(2, 2), pool_strides=None, pool_padding=(0, 0, 0, 0),
    strides=(1, 1), padding=(0, 0, 0, 0), dilations=(1, 1), groups=1,
):  # fmt: skip
    attributes = {
        "strides": list(strides),
        "padding": list(padding),
        "dilations": list(dilations),
        "groups": groups,
        "window": list(pool),
        "pool_strides": list(pool_strides or pool),
        "pool_padding": list(pool_padding),
    }
    return x, kernel, attributes


SAME_3X3, SAME_5X5 = (1, 1, 1, 1), (2, 2, 2, 2)
LAYERS = {
    "same": _layer((2, 8, 8, 3), (3, 3, 3, 5), padding=SAME_3X3),
    "same_5x5": _layer((3, 8, 12, 1), (5, 5, 1, 6), padding=SAME_5X5),
    "mnist": _layer((2, 28, 28, 1), (3, 3, 1, 32)),
    "lenet_1": _layer((3, 28, 28, 1), (5, 5, 1, 6), padding=SAME_5X5),
    "lenet_2": _layer((3, 14, 14, 6), (5, 5, 6, 16)),
    "second_layer": _layer((2, 13, 13, 32), (3, 3, 32, 64)),
    "second_layer_same": _layer((3, 14, 14, 32), (3, 3, 32, 64), padding=SAME_3X3),
    "odd_channels": _layer((3, 9, 11, 20), (3, 3, 20, 37), padding=SAME_3X3),
    "five_rows": _layer((2, 12, 13, 18), (5, 4, 18, 21), padding=(2, 2, 1, 2)),
    "seven_rows": _layer((1, 14, 15, 9), (7, 2, 9, 33), padding=(0, 3, 1, 0)),
    "wide_run": _layer((1, 7, 9, 70), (2, 5, 70, 17), padding=(1, 0, 2, 2)),
    "many_places": _layer((1, 36, 41, 16), (3, 3, 16, 5), padding=SAME_3X3),
    "rgb": _layer((2, 10, 12, 3), (3, 3, 3, 40), padding=SAME_3X3),
    "tall_kernel": _layer((2, 17, 8, 1), (9, 2, 1, 19)),
    "row_windows": _layer((2, 6, 15, 1), (3, 4, 1, 20), pool=(1, 3)),
    "column_windows": _layer((2, 15, 6, 5), (4, 3, 5, 18), pool=(4, 1)),
    "strided_channels": _layer((2, 21, 13, 16), (3, 3, 16, 24), (3, 2), (3, 4), strides=(2, 1)),
    "strided_small": _layer((2, 21, 23, 1), (3, 3, 1, 18), strides=(2, 3), padding=SAME_3X3),
    "overlapping_channels": _layer((2, 15, 13, 17), (3, 3, 17, 20), (3, 3), (2, 2)),
    "pointwise_channels": _layer((3, 6, 8, 33), (1, 1, 33, 20)),
    "two_channels": _layer((2, 10, 10, 2), (3, 3, 2, 8)),
    "four_channels": _layer((2, 9, 10, 4), (5, 5, 4, 8), padding=SAME_5X5),
    # No window covers the last row and column.
    "dropped_border": _layer((2, 9, 11, 3), (3, 3, 3, 4)),
    "overlapping": _layer((2, 11, 9, 2), (3, 3, 2, 4), pool=(3, 3), pool_strides=(2, 2)),
    "overlapping_same": _layer(
        (2, 9, 8, 2), (3, 3, 2, 3), (3, 3), (2, 2), (1, 1, 0, 1), padding=SAME_3X3
    ),
    "apart": _layer((2, 12, 11, 1), (2, 3, 1, 4), pool=(2, 2), pool_strides=(3, 4)),
    "rectangular": _layer((2, 9, 10, 2), (2, 3, 2, 5), pool=(3, 2), padding=(0, 1, 2, 0)),
    "strided": _layer((2, 15, 17, 2), (3, 2, 2, 3), strides=(2, 3)),
    "dilated": _layer((2, 12, 11, 2), (3, 2, 2, 3), dilations=(2, 3)),
    "grouped": _layer((2, 8, 7, 4), (3, 3, 2, 6), padding=SAME_3X3, groups=2),
    "depthwise": _layer((2, 8, 6, 3), (3, 3, 1, 6), groups=3),
    "pointwise": _layer((2, 6, 4, 7), (1, 1, 7, 3)),
    "no_pooling": _layer((2, 5, 6, 2), (3, 3, 2, 3), pool=(1, 1)),
    "whole_image": _layer((3, 6, 5, 2), (3, 3, 2, 4), pool=(4, 3)),
    "one_window": _layer((1, 3, 3, 1), (2, 2, 1, 1)),
    "big_window": _layer((1, 19, 19, 1), (2, 2, 1, 2), pool=(17, 17), pool_strides=(1, 1)),
    "empty_batch": _layer((0, 6, 6, 2), (3, 3, 2, 3)),
}
LARGE = _layer((65_600, 3, 4, 1), (2, 2, 1, 2))
ACTIVATED = _layer((1, 8, 7, 2), (3, 3, 2, 3))


def _exact_inputs(rng, geometry, bias):
    """Draws inputs whose products and sums are multiples of 1/8, exact even in bfloat16 and TF32.

    A window's maximum then has the same position in every arithmetic, ties included.
    """
    x, kernel, _ = geometry
    inputs = [few_values(rng, *x), few_values(rng, *kernel) / 8]
    return [*inputs, few_values(rng, kernel[3]) / 8] if bias else inputs


def _distinct_inputs(rng, geometry, attributes):
    """Draws inputs until each window's maximum is clear of the next number.

    Products and sums are multiples of 1/128, exact in float32 and TF32; the activation is not.
    """
    x, kernel, _ = geometry
    conv = {
        name: value
        for name, value in attributes.items()
        if name != "window" and not name.startswith("pool_")
    }
    for _ in range(1000):
        inputs = [
            few_values(rng, *x),
            rng.integers(-100, 101, kernel) / 128,
            rng.integers(-100, 101, kernel[3]) / 128,
        ]
        y = REFERENCES["conv2d"](*inputs, **conv)
        n, height, width, channels = y.shape
        blocks = y.reshape(n, height // 2, 2, -1)[..., : width // 2 * 2 * channels]
        blocks = blocks.reshape(n, height // 2, 2, width // 2, 2, channels)
        ordered = np.sort(np.moveaxis(blocks, (2, 4), (-2, -1)).reshape(-1, 4), axis=-1)
        if (ordered[:, 3] - ordered[:, 2]).min() > 0.005:
            return inputs
    raise AssertionError("no inputs whose windows have one maximum each")


def _forward_inputs(rng, geometry, attributes, bias):
    if attributes["activation"] in _ROUNDED:
        return _distinct_inputs(rng, geometry, attributes)
    return _exact_inputs(rng, geometry, bias)


def _attributes(geometry, activation):
    return {
        **geometry[2],
        "activation": activation,
        "activation_alpha": _ACTIVATIONS[activation],
    }


def _call(op, rng, geometry, activation="relu", bias=True):
    attributes = _attributes(geometry, activation)
    inputs = _forward_inputs(rng, geometry, attributes, bias)
    if op == FORWARD:
        return inputs, attributes
    y, index = conv2d_max_pool2d(*inputs, **attributes)
    gy = normal(rng, *y.shape)
    x, kernel = inputs[:2]
    if op == f"{FORWARD}_dgrad":
        kernel = normal(rng, *kernel.shape) / np.sqrt(np.prod(kernel.shape[:3]))
        return [gy, y, index, kernel], {**attributes, "input_shape": list(x.shape)}
    x = normal(rng, *x.shape)
    return [x, gy, y, index], {**attributes, "kernel_shape": list(kernel.shape)}


def _draw_layer(rng):
    """Draws a layer whose kernel and window fit."""
    groups = int(rng.integers(1, 3))
    kernel, window = rng.integers(1, 5, 2), rng.integers(1, 4, 2)
    strides, pool_strides = rng.integers(1, 3, 2), rng.integers(1, 4, 2)
    dilations, padding = rng.integers(1, 3, 2), rng.integers(0, 3, 4)
    covered = (kernel - 1) * dilations + 1
    size = covered + (window - 1) * strides + rng.integers(0, 8, 2)
    channels, filters = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 5))
    return _layer(
        (int(rng.integers(1, 4)), *map(int, size), channels),
        (*map(int, kernel), channels // groups, filters),
        [int(n) for n in window],
        [int(n) for n in pool_strides],
        [int(rng.integers(0, window[i // 2])) for i in range(4)],
        [int(n) for n in strides],
        [int(n) for n in padding],
        [int(n) for n in dilations],
        groups,
    )


def _rows():
    rows = []
    for op in (FORWARD, f"{FORWARD}_dgrad", f"{FORWARD}_wgrad"):
        for id, geometry in LAYERS.items():
            make = lambda rng, op=op, g=geometry: _call(op, rng, g)  # noqa: E731
            rows.append(row(op, id, make))
        rows.append(large(op, lambda rng, op=op: _call(op, rng, LARGE)))
        for i in range(4):
            make = lambda rng, op=op: _call(op, rng, _draw_layer(rng))  # noqa: E731
            rows.append(row(op, f"drawn_{i}", make))
        for activation in _ACTIVATIONS:
            make = lambda rng, op=op, a=activation: _call(op, rng, ACTIVATED, a)  # noqa: E731
            # In 16 bits different numbers may become equal, and then the first one is the maximum.
            is_rounded = op == FORWARD and activation in _ROUNDED
            dtypes = ("float64", "float32") if is_rounded else FLOATS
            rows.append(row(op, activation, make, dtypes=dtypes))
    for id in ("same", "mnist", "lenet_2", "overlapping", "grouped"):
        make = lambda rng, g=LAYERS[id]: _call(FORWARD, rng, g, bias=False)  # noqa: E731
        rows.append(row(FORWARD, f"{id}_no_bias", make))
    return rows


def _kernel_gradient(x, kernel, padding=0):
    """Makes a case of the gradient alone, without pooling."""

    def make(rng):
        size = [x[1 + i] + 2 * padding - kernel[i] + 1 for i in (0, 1)]
        attributes = {
            "strides": [1, 1],
            "padding": [padding] * 4,
            "dilations": [1, 1],
            "groups": 1,
            "kernel_shape": list(kernel),
        }
        return [normal(rng, *x), normal(rng, x[0], *size, kernel[3])], attributes

    return make


CASES = [
    *_rows(),
    row("conv2d_wgrad", "small", _kernel_gradient((2, 8, 9, 3), (3, 3, 3, 5))),
    row("conv2d_wgrad", "tensor_cores", _kernel_gradient((8, 14, 14, 32), (3, 3, 32, 32), 1)),
]
