"""Rows of dense, convolution, pooling, batch normalization and cross-entropy."""

from __future__ import annotations

import numpy as np

from .case import Bad, distinct, large, normal, positive, row, zeros
from .reference import REFERENCES

_LINEAR = {"activation": "linear", "activation_alpha": 0.0}
_FUSED = {
    "relu": 0.0,
    "leaky_relu": 0.2,
    "clipped_relu": 1.0,
    "elu": 0.6,
    "sigmoid": 0.0,
    "tanh": 0.0,
    "gelu": 0.0,
    "silu": 0.0,
    "softplus": 0.0,
}
_KINKS = {"relu": (0.0,), "leaky_relu": (0.0,), "clipped_relu": (0.0, 1.0), "elu": (0.0,)}


def _activated(op, generate, attributes, activation, alpha):
    """Draws inputs again until no input of the activation is near one of its kinks."""

    def make(rng):
        for _ in range(200):
            inputs = generate(rng)
            z = REFERENCES[op](*inputs, **attributes, **_LINEAR)
            if all(np.abs(z - point).min() > 0.01 for point in _KINKS.get(activation, ())):
                break
        return inputs, {**attributes, "activation": activation, "activation_alpha": alpha}

    return make


def _dense():
    def make(n, k, m, bias=True):
        def call(rng):
            inputs = [normal(rng, n, k), normal(rng, k, m) / np.sqrt(k)]
            return [*inputs, normal(rng, m)] if bias else inputs

        return call

    sizes = {"small": (4, 5, 3), "one": (1, 1, 1), "mnist": (33, 100, 10), "odd": (7, 131, 67)}
    rows = []
    for id, size in sizes.items():
        for bias in (True, False):
            generate = make(*size, bias=bias)
            call = lambda rng, generate=generate: (generate(rng), _LINEAR)  # noqa: E731
            rows.append(row("dense", f"{id}{'' if bias else '_no_bias'}", call))
    for activation, alpha in _FUSED.items():
        rows.append(
            row("dense", activation, _activated("dense", make(5, 6, 4), {}, activation, alpha))
        )
    rows.append(
        row("dense", "gelu_approximate", _activated("dense", make(5, 6, 4), {}, "gelu", 1.0))
    )
    rows.append(row("dense", "empty", lambda rng: (make(0, 4, 3)(rng), _LINEAR)))
    rows.append(large("dense", lambda rng: (make(65_600, 3, 2)(rng), _LINEAR)))
    return rows


def _conv(x, kernel, strides=(1, 1), padding=(0, 0, 0, 0), dilations=(1, 1), groups=1):
    attributes = {
        "strides": list(strides),
        "padding": list(padding),
        "dilations": list(dilations),
        "groups": groups,
    }
    return x, kernel, attributes


CONVOLUTIONS = {
    "same_odd": _conv((2, 7, 9, 3), (3, 3, 3, 5), padding=(1, 1, 1, 1)),
    "valid_5x5": _conv((2, 12, 11, 1), (5, 5, 1, 6)),
    "mnist": _conv((2, 28, 28, 1), (3, 3, 1, 32)),
    "second_layer": _conv((2, 13, 13, 32), (3, 3, 32, 16)),
    "strided": _conv((2, 9, 11, 2), (3, 2, 2, 3), strides=(2, 3)),
    "strided_padded": _conv((1, 8, 7, 3), (3, 3, 3, 4), strides=(2, 2), padding=(0, 1, 1, 0)),
    "dilated": _conv((2, 10, 9, 2), (3, 2, 2, 3), padding=(0, 1, 1, 2), dilations=(2, 3)),
    "grouped": _conv((2, 6, 5, 4), (3, 3, 2, 6), padding=(1, 1, 1, 1), groups=2),
    # One engine of cuDNN 9.19 gives wrong kernel gradients here, and planning avoids it.
    "grouped_lopsided": _conv(
        (1, 5, 3, 6), (4, 3, 2, 9), strides=(1, 2), padding=(0, 1, 2, 1), groups=3
    ),
    "depthwise": _conv((2, 6, 5, 3), (3, 3, 1, 6), padding=(1, 1, 1, 1), groups=3),
    "pointwise": _conv((2, 5, 4, 7), (1, 1, 7, 3)),
    "pointwise_strided": _conv((2, 5, 5, 3), (1, 1, 3, 4), strides=(2, 2)),
    "pointwise_strided_narrow": _conv((2, 10, 10, 3), (1, 1, 3, 1), strides=(2, 2)),
    "row_kernel": _conv((1, 4, 9, 2), (1, 5, 2, 3), padding=(0, 0, 2, 2)),
    "taps_on_padding_alone": _conv(
        (4, 5, 1, 16), (5, 3, 16, 32), strides=(2, 2), padding=(2, 2, 1, 1)
    ),
    "outputs_on_padding_alone": _conv(
        (2, 8, 7, 16), (2, 2, 16, 16), padding=(8, 8, 1, 0), dilations=(16, 1)
    ),
    "wide_padding_of_many_channels": _conv((3, 16, 20, 64), (3, 3, 64, 64), padding=(1, 1, 3, 4)),
    "wide_padding": _conv((1, 3, 3, 1), (2, 2, 1, 2), padding=(3, 2, 4, 3)),
    "whole_image": _conv((3, 4, 5, 2), (4, 5, 2, 7)),
    "unused_border": _conv((1, 8, 8, 1), (2, 2, 1, 1), strides=(3, 3)),
    "one_pixel": _conv((1, 1, 1, 1), (1, 1, 1, 1)),
    "vectorized": _conv((2, 8, 8, 16), (3, 3, 16, 32), padding=(1, 1, 1, 1)),
    # On a GPU, patches of few channels are gathered for a product; a pointwise kernel needs none.
    "patches": _conv((3, 12, 8, 3), (4, 2, 3, 16), strides=(4, 2)),
    # Those that lie side by side, as a vision transformer's, are copied in words as wide as fit.
    "patches_in_words": _conv((5, 32, 48, 3), (16, 16, 3, 136), strides=(16, 16)),
    "patches_beside_a_rest": _conv((3, 22, 43, 3), (10, 20, 3, 136), strides=(10, 20)),
    "patches_of_odd_rows": _conv((3, 41, 35, 1), (20, 16, 1, 136), strides=(20, 16)),
    "patches_of_many_taps": _conv((2, 44, 37, 8), (22, 18, 8, 136), strides=(22, 18)),
    "patches_of_a_stem": _conv((2, 17, 13, 3), (7, 7, 3, 8), strides=(2, 2), padding=(3, 2, 3, 3)),
    "patches_dilated": _conv((2, 11, 13, 5), (3, 2, 5, 8), padding=(1, 0, 2, 1), dilations=(1, 3)),
    "patches_of_a_pixel": _conv((2, 9, 7, 12), (1, 1, 12, 16), strides=(2, 3)),
    "pointwise_aligned": _conv((3, 5, 7, 16), (1, 1, 16, 24)),
    "empty_batch": _conv((0, 5, 5, 2), (3, 3, 2, 3)),
    "large": _conv((65_600, 3, 3, 1), (2, 2, 1, 2)),
}


def _draw_convolution(rng):
    """Draws a convolution whose kernel fits into the image."""
    groups = int(rng.integers(1, 4))
    kernel_size = rng.integers(1, 5, 2)
    strides, dilations = rng.integers(1, 4, 2), rng.integers(1, 3, 2)
    padding = rng.integers(0, 3, 4)
    covered = (kernel_size - 1) * dilations + 1
    size = np.maximum(covered - padding[[0, 2]] - padding[[1, 3]], 1) + rng.integers(0, 7, 2)
    channels, filters = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    x = (int(rng.integers(1, 4)), *map(int, size), channels)
    kernel = (*map(int, kernel_size), channels // groups, filters)
    return _conv(x, kernel, [int(s) for s in strides], [int(p) for p in padding],
                 [int(d) for d in dilations], groups)  # fmt: skip


def _conv_output(x, kernel, attributes):
    top, bottom, left, right = attributes["padding"]
    size = [
        (extent + pad - dilation * (k - 1) - 1) // stride + 1
        for extent, pad, dilation, k, stride in zip(
            x[1:3],
            (top + bottom, left + right),
            attributes["dilations"],
            kernel[:2],
            attributes["strides"],
            strict=True,
        )
    ]
    return (x[0], *size, kernel[3])


def _kernel(rng, shape):
    return normal(rng, *shape) / np.sqrt(np.prod(shape[:3]))


def _conv_call(op, rng, geometry):
    x, kernel, attributes = geometry
    if op == "conv2d":
        return [normal(rng, *x), _kernel(rng, kernel)], {**attributes, **_LINEAR}
    gy = normal(rng, *_conv_output(x, kernel, attributes))
    if op == "conv2d_dgrad":
        return [gy, _kernel(rng, kernel)], {**attributes, "input_shape": list(x)}
    return [normal(rng, *x), gy], {**attributes, "kernel_shape": list(kernel)}


def _convolutions():
    rows = []
    for op in ("conv2d", "conv2d_dgrad", "conv2d_wgrad"):
        for id, geometry in CONVOLUTIONS.items():
            make = lambda rng, op=op, geometry=geometry: _conv_call(op, rng, geometry)  # noqa: E731
            rows.append(large(op, make) if id == "large" else row(op, id, make))
        for i in range(4):
            make = lambda rng, op=op: _conv_call(op, rng, _draw_convolution(rng))  # noqa: E731
            rows.append(row(op, f"drawn_{i}", make))

    def with_bias(id):
        x, kernel, attributes = CONVOLUTIONS[id]
        generate = lambda rng: [normal(rng, *x), _kernel(rng, kernel), normal(rng, kernel[3])]  # noqa: E731
        return generate, attributes

    for id in ("strided_padded", "grouped", "pointwise", "pointwise_aligned", "mnist"):
        generate, attributes = with_bias(id)
        make = lambda rng, g=generate, a=attributes: (g(rng), {**a, **_LINEAR})  # noqa: E731
        rows.append(row("conv2d", f"{id}_bias", make))
    for activation, alpha in _FUSED.items():
        generate, attributes = with_bias("strided_padded")
        make = _activated("conv2d", generate, attributes, activation, alpha)
        rows.append(row("conv2d", activation, make))
    return rows


def _pool(x, window, strides, padding=(0, 0, 0, 0)):
    return x, {"window": list(window), "strides": list(strides), "padding": list(padding)}


POOLS = {
    "halves": _pool((2, 8, 6, 3), (2, 2), (2, 2)),
    "odd": _pool((2, 7, 9, 2), (2, 2), (2, 2)),
    "overlapping": _pool((2, 8, 7, 3), (3, 3), (2, 2)),
    "dense": _pool((1, 6, 5, 2), (3, 2), (1, 1)),
    "same": _pool((2, 7, 5, 3), (3, 3), (2, 2), (1, 1, 1, 1)),
    "lopsided": _pool((1, 6, 7, 2), (2, 3), (2, 3), (0, 1, 1, 0)),
    "sparse": _pool((1, 9, 9, 1), (2, 2), (4, 3)),
    "whole_image": _pool((3, 5, 4, 2), (5, 4), (1, 1)),
    "one_pixel": _pool((2, 3, 3, 1), (1, 1), (1, 1)),
    "big_window": _pool((1, 20, 20, 1), (17, 17), (2, 2)),
    "many_channels": _pool((2, 4, 4, 35), (2, 2), (2, 2)),
    "empty_batch": _pool((0, 4, 4, 2), (2, 2), (2, 2)),
    "large": _pool((65_600, 2, 3, 1), (2, 2), (1, 1)),
}


def _draw_pool(rng):
    window = rng.integers(1, 5, 2)
    padding = [int(rng.integers(0, window[i // 2])) for i in range(4)]
    size = window + rng.integers(0, 7, 2)
    x = (int(rng.integers(1, 4)), *map(int, size), int(rng.integers(1, 6)))
    return _pool(x, map(int, window), [int(s) for s in rng.integers(1, 5, 2)], padding)


def _pool_call(op, rng, geometry):
    shape, attributes = geometry
    x = distinct(rng, *shape)
    if not op.endswith("_grad"):
        return [x], attributes
    result = REFERENCES[op.removesuffix("_grad")](x, **attributes)
    attributes = {**attributes, "input_shape": list(shape)}
    if op == "avg_pool2d_grad":
        return [normal(rng, *result.shape)], attributes
    return [normal(rng, *result[0].shape), result[1]], attributes


def _pooling():
    rows = []
    for op in ("max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad"):
        for id, geometry in POOLS.items():
            make = lambda rng, op=op, geometry=geometry: _pool_call(op, rng, geometry)  # noqa: E731
            rows.append(large(op, make) if id == "large" else row(op, id, make))
        for i in range(3):
            make = lambda rng, op=op: _pool_call(op, rng, _draw_pool(rng))  # noqa: E731
            rows.append(row(op, f"drawn_{i}", make))

    def ties(rng):
        _, attributes = POOLS["same"]
        return [rng.integers(-1, 2, (2, 7, 5, 3)).astype(np.float64)], attributes

    def not_numbers(rng):
        _, attributes = POOLS["same"]
        x = normal(rng, 2, 7, 5, 3)
        x[rng.random(x.shape) < 0.2] = np.nan
        x[rng.random(x.shape) < 0.2] = -np.inf
        return [x], attributes

    rows.append(row("max_pool2d", "ties", ties, gradient=False))
    rows.append(row("max_pool2d", "nan", not_numbers, gradient=False))
    return rows


def _batch_norm():
    shapes = {
        "matrix": (9, 4),
        "image": (3, 5, 4, 6),
        "one_channel": (17, 1),
        "three_rows": (3, 5),
        "many_channels": (12, 200),
        "many_rows": (5000, 3),
    }

    def forward(shape):
        # The mean is large compared with the deviation, where a one-pass variance loses its digits.
        return lambda rng: (
            [normal(rng, *shape) + 3.0, normal(rng, shape[-1]), normal(rng, shape[-1])],
            {"epsilon": 1e-3},
        )

    def moments(shape, **attributes):
        return lambda rng: ([normal(rng, *shape) + 3.0], attributes)

    def backward(shape):
        def make(rng):
            x = normal(rng, *shape) + 3.0
            gamma = normal(rng, shape[-1])
            _, mean, _, inverse = REFERENCES["batch_norm"](x, gamma, np.zeros(shape[-1]), 1e-3)
            return [normal(rng, *shape), x, gamma, mean, inverse], {}

        return make

    # The statistics of the forward pass are rounded to bfloat16 before the backward pass uses them.
    rows = []
    for id, shape in shapes.items():
        rows.append(row("batch_norm", id, forward(shape)))
        rows.append(row("batch_norm_grad", id, backward(shape)))
        rows.append(row("column_moments", id, moments(shape)))
    for shape, outer_axes in (((3, 4, 5, 6), 1), ((2, 3, 7, 1), 2), ((4, 1, 3), 1)):
        make = moments(shape, outer_axes=outer_axes)
        rows.append(row("column_moments", f"{shape}_outer_axes{outer_axes}", make))
    many = moments((70, 2_000, 3), outer_axes=1)
    rows.append(large("column_moments", many, "large_outer_axes"))
    for shape in ((65_600, 2), (2, 65_600)):
        rows.append(large("batch_norm", forward(shape), f"large_{shape[1]}"))
        rows.append(large("batch_norm_grad", backward(shape), f"large_{shape[1]}"))
        rows.append(large("column_moments", moments(shape), f"large_{shape[1]}"))

    def far_from_zero(rng):
        return [normal(rng, 64, 3) + 1000.0, np.ones(3), np.zeros(3)], {"epsilon": 1e-3}

    # float32 rounds 1000 + noise to 6e-5 of the noise, but the inputs are given with that rounding.
    rows.append(
        row("batch_norm", "far_from_zero", far_from_zero, dtypes=("float64", "float32"),
            gradient=False, tolerance={"float32": 1e-4, "float64": 1e-10},
            reason="the mean, about 1000, is itself rounded to 6e-5 of a deviation")
    )  # fmt: skip
    return rows


def _labels(rng, n, classes, kind):
    return rng.integers(0, classes, n).astype(kind)


def _cross_entropy():
    rows = []
    sizes = {
        "ten": (12, 10),
        "one_class": (3, 1),
        "wide": (4, 1000),
        "empty": (0, 5),
        "one": (1, 3),
    }
    for id, (n, k) in sizes.items():
        for kind in ("int32", "int64"):
            for epsilon in (0.0, 1e-7):

                def probabilities(rng, n=n, k=k, kind=kind, epsilon=epsilon):
                    # The rows do not add up to 1, because the op normalizes them.
                    return [positive(rng, n, k), _labels(rng, n, k, kind)], {"epsilon": epsilon}

                def logits(rng, n=n, k=k, kind=kind, epsilon=epsilon):
                    # No p is near 1: -log of a p that is rounded to float32 has an error of 6e-8 /
                    # (1 - p).
                    x = rng.uniform(-2, 2, (n, k))
                    return [x, _labels(rng, n, k, kind)], {"epsilon": epsilon}

                def gradient(rng, make=probabilities):
                    (p, labels), attributes = make(rng)
                    # The differences must not cross the clip, and 1 / p must be nearly linear over
                    # them: the label's probability is a third or more.
                    p[np.arange(labels.size), labels] += 0.5 * p.sum(axis=1)
                    p = p / p.sum(axis=1, keepdims=True)
                    return [normal(rng, labels.size), p, labels], attributes

                def with_gradient(rng, make=logits):
                    (x, labels), attributes = make(rng)
                    return [x, labels, normal(rng, labels.size)], attributes

                if k == 1 and epsilon > 0:
                    continue  # p is 1 and clipped, which the row "clipped" covers
                name = f"{id}_{kind}_{'exact' if epsilon == 0 else 'clipped'}"
                # With one class the loss is the logarithm of a rounded 1, and its slope is rounding
                # error.
                options = {"gradient": k > 1, "dtypes": ("float64", "float32")} if k == 1 else {}
                rows.append(row("sparse_cross_entropy", name, probabilities, **options))
                rows.append(row("sparse_softmax_cross_entropy", name, logits, **options))
                rows.append(row("sparse_softmax_cross_entropy_grad", name, gradient))
                # The gradient p - 1 keeps few digits of a rounded probability.
                options = {"tolerance": {"float16": 2.0**-6, "bfloat16": 2.0**-3}}
                joined = f"{name}_with_gradient"
                if k > 1:
                    rows.append(
                        row("sparse_softmax_cross_entropy", joined, with_gradient, **options)
                    )
                    rows.append(row("sparse_cross_entropy_grad", name, gradient))
    rows += _cross_entropy_corners()
    return rows


def _cross_entropy_corners():
    """Makes rows for clipped probabilities, labels out of range, extreme logits, and many rows."""
    labels = np.array([0, 1, 2, 0], dtype=np.int32)
    p = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.5, 0.5]])
    logits = np.array([[80.0, 0.0, 0.0], [80.0, 0.0, 0.0], [0.1, 0.2, 0.3], [-90.0, 1.0, 1.0]])
    wrong = np.array([0, -1, 3, 2], dtype=np.int32)
    gy = np.array([1.0, -2.0, 0.5, 3.0])
    epsilon = {"epsilon": 1e-7}
    # In float32 the clip at 1 - 1e-7 is 1 - 1.19e-7, and -log of it has that relative error.
    rounded = {
        "dtypes": ("float64", "float32"),
        "gradient": False,
        "tolerance": {"float32": 1e-5},
    }
    rows = []
    for id, chosen in (("clipped_rows", labels), ("label_out_of_range", wrong)):
        rows += [
            row("sparse_cross_entropy", id, lambda rng, c=chosen: ([p, c], epsilon), **rounded),
            row(
                "sparse_softmax_cross_entropy",
                id,
                lambda rng, c=chosen: ([logits, c], epsilon),
                **rounded,
            ),
            row(
                "sparse_softmax_cross_entropy",
                f"{id}_with_gradient",
                lambda rng, c=chosen: ([logits, c, gy], epsilon),
                **rounded,
            ),
        ]
    for op in ("sparse_cross_entropy_grad", "sparse_softmax_cross_entropy_grad"):
        rows.append(row(op, "clipped_rows", lambda rng: ([gy, p, labels], epsilon), **rounded))

        def many(rng):
            q = positive(rng, 65_600, 3)
            q /= q.sum(axis=1, keepdims=True)
            return [normal(rng, 65_600), q, _labels(rng, 65_600, 3, "int32")], epsilon

        rows.append(large(op, many))
        rows.append(
            large(op.removesuffix("_grad"), lambda rng, many=many: (many(rng)[0][1:], epsilon))
        )
    extreme = np.array([[1000.0, -1000.0], [-1000.0, 1000.0]])
    make = lambda rng: ([extreme, np.array([0, 0])], {"epsilon": 0.0})  # noqa: E731
    rows.append(row("sparse_softmax_cross_entropy", "extreme", make, gradient=False))
    return rows


CASES = [*_dense(), *_convolutions(), *_pooling(), *_batch_norm(), *_cross_entropy()]


def _bad():
    x, kernel = zeros(1, 5, 5, 2), zeros(3, 3, 2, 4)
    conv = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilations": [1, 1], "groups": 1, **_LINEAR}
    grad = {name: value for name, value in conv.items() if not name.startswith("activation")}
    pool = {"window": [2, 2], "strides": [2, 2], "padding": [0, 0, 0, 0]}
    whole = zeros(1, 5, 5, 2, dtype="int32")
    p, labels = zeros(4, 3), zeros(4, dtype="int32")
    v, e = ValueError, {"epsilon": 1e-7}
    rows = [
        Bad(
            "dense",
            [zeros(2, 3), zeros(4, 5)],
            _LINEAR,
            v,
            "dense: the input has 3 features but the kernel takes 4",
        ),
        Bad(
            "dense", [zeros(2, 3, 1), zeros(3, 5)], _LINEAR, v, "dense: the input must have 2 axes"
        ),
        Bad(
            "dense",
            [zeros(2, 3), zeros(3, 5), zeros(4)],
            _LINEAR,
            v,
            "dense: the bias must have shape (5,)",
        ),
        Bad(
            "dense",
            [zeros(2, 3), zeros(3, 5)],
            {**_LINEAR, "activation": "swoosh"},
            v,
            'no activation "swoosh"',
        ),
        Bad(
            "conv2d",
            [x, zeros(3, 3, 3, 4)],
            conv,
            v,
            "conv2d: the input has 2 channels in 1 group but the kernel takes 3",
        ),
        Bad(
            "conv2d",
            [zeros(1, 2, 5, 2), kernel],
            conv,
            v,
            "conv2d: a kernel of height 3 is larger than the input's height 2",
        ),
        Bad(
            "conv2d",
            [x, kernel],
            {**conv, "dilations": [1, 3]},
            v,
            "conv2d: a kernel of width 3 (7 with dilation 3) is larger",
        ),
        Bad("conv2d", [zeros(5, 5, 2), kernel], conv, v, "conv2d: the input must have 4 axes"),
        Bad(
            "conv2d",
            [x, kernel],
            {**conv, "strides": [0, 1]},
            v,
            "conv2d: strides must be 2 integers of at least 1",
        ),
        Bad(
            "conv2d",
            [x, kernel],
            {**conv, "padding": [1, 1]},
            v,
            "conv2d: padding must be 4 integers",
        ),
        Bad("conv2d", [x, kernel], {**conv, "groups": 0}, v, "conv2d: groups must be positive"),
        Bad(
            "conv2d",
            [x, zeros(3, 3, 1, 3)],
            {**conv, "groups": 2},
            v,
            "filters divisible by the 2 groups",
        ),
        Bad("conv2d", [x, kernel, zeros(3)], conv, v, "conv2d: the bias must have shape (4,)"),
        Bad(
            "conv2d",
            [whole, zeros(3, 3, 2, 4, dtype="int32")],
            conv,
            TypeError,
            "conv2d: the input must be floating",
        ),
        Bad(
            "conv2d",
            [x, zeros(3, 3, 2, 4, dtype="float64")],
            conv,
            TypeError,
            "must have one dtype",
        ),
        Bad(
            "conv2d_dgrad",
            [zeros(1, 4, 3, 4), kernel],
            {**grad, "input_shape": [1, 5, 5, 2]},
            v,
            "conv2d_dgrad: the gradient must have shape (1, 3, 3, 4)",
        ),
        Bad(
            "conv2d_wgrad",
            [x, zeros(1, 3, 3, 5)],
            {**grad, "kernel_shape": [3, 3, 2, 4]},
            v,
            "conv2d_wgrad: the gradient must have shape (1, 3, 3, 4)",
        ),
        Bad(
            "max_pool2d_grad",
            [zeros(1, 2, 2, 2), zeros(1, 2, 2, 2, dtype="int32")],
            {**pool, "input_shape": [1, 5, 5, 2]},
            v,
            "max_pool2d_grad: the index must be uint8",
        ),
        Bad(
            "avg_pool2d_grad",
            [zeros(1, 3, 2, 2)],
            {**pool, "input_shape": [1, 5, 5, 2]},
            v,
            "avg_pool2d_grad: the gradient must have shape (1, 2, 2, 2)",
        ),
        Bad("batch_norm", [p, zeros(3), zeros(2)], e, v, "batch_norm: beta must have shape (3,)"),
        Bad("batch_norm", [zeros(0, 3), zeros(3), zeros(3)], e, v, "has no mean and variance"),
        Bad(
            "batch_norm",
            [zeros(3), zeros(3), zeros(3)],
            e,
            v,
            "batch_norm: the input must have 2 or more axes",
        ),
        Bad(
            "batch_norm",
            [p, zeros(3), zeros(3)],
            {"epsilon": -1.0},
            v,
            "epsilon must not be negative",
        ),
        Bad("column_moments", [zeros(3)], e, v, "the input must have 2 or more axes"),
        Bad("column_moments", [zeros(0, 3)], e, v, "has no mean and variance"),
        Bad(
            "column_moments",
            [zeros(2, 3, 4)],
            {"outer_axes": 2},
            v,
            "outer_axes must be from 0 to 1 for an input of shape (2, 3, 4), received 2",
        ),
        Bad(
            "batch_norm_grad",
            [p, p, zeros(3), zeros(3), zeros(2)],
            {},
            v,
            "the inverse standard deviation must have shape",
        ),
    ]
    for op in ("max_pool2d", "avg_pool2d"):
        rows += [
            Bad(
                op,
                [zeros(1, 1, 5, 2)],
                pool,
                v,
                f"{op}: a window of height 2 is larger than the input's height 1",
            ),
            Bad(
                op,
                [x],
                {**pool, "padding": [0, 0, 2, 0]},
                v,
                f"{op}: padding must be smaller than the window",
            ),
            Bad(op, [zeros(5, 5, 2)], pool, v, f"{op}: the input must have 4 axes"),
            Bad(op, [whole], pool, TypeError, f"{op}: the input must be floating"),
        ]
    for op in ("sparse_cross_entropy", "sparse_softmax_cross_entropy"):
        rows += [
            Bad(op, [p, zeros(4)], e, TypeError, f"{op}: the labels must be int32 or int64"),
            Bad(op, [p, zeros(3, dtype="int32")], e, v, f"{op}: 3 labels for 4 samples"),
            Bad(op, [p, labels], {"epsilon": 0.7}, v, f"{op}: epsilon must be in [0, 0.5)"),
            Bad(
                f"{op}_grad",
                [zeros(3), p, labels],
                e,
                v,
                f"{op}_grad: the gradient must have shape (4,)",
            ),
        ]
    return rows


BAD = _bad()
