"""Rows of the ops that join a product with what follows it or stands beside it."""

from __future__ import annotations

import numpy as np

from .case import Bad, Case, away_from, large, normal, row, zeros
from .reference import activate

GRADIENT, LOSS = "matmul_activation_grad", "dense_sparse_softmax_cross_entropy"
HEAD, WGRAD = "dense_sparse_softmax_cross_entropy_dgrad", "dense_wgrad"
# The activations whose gradient follows from their output, with parameters exact in every dtype.
ACTIVATIONS = {
    "linear": 0.0,
    "relu": 0.0,
    "leaky_relu": 0.25,
    "clipped_relu": 1.0,
    "elu": 0.5,
    "sigmoid": 0.0,
    "tanh": 0.0,
}


def activation_outputs(rng, activation, alpha, *shape):
    """What the activation gives for numbers away from its kinks."""
    return activate(away_from(rng, (0.0, 1.0), *shape), activation, alpha)


def _gradient(m, k, n, activation="relu", transpose_a=False, transpose_b=True):
    def make(rng):
        alpha = ACTIVATIONS[activation]
        a = normal(rng, *((k, m) if transpose_a else (m, k)))
        b = normal(rng, *((n, k) if transpose_b else (k, n))) / np.sqrt(max(k, 1))
        attributes = {
            "transpose_a": transpose_a,
            "transpose_b": transpose_b,
            "activation": activation,
            "activation_alpha": alpha,
        }
        return [a, b, activation_outputs(rng, activation, alpha, m, n)], attributes

    return make


def _gradients():
    # The op is a gradient already. The parts round the product and then its gradient: one rounding
    # more than an op has by itself.
    options = {
        "gradient": False,
        "tolerance": {"float16": 2.0**-9, "bfloat16": 2.0**-6},
    }
    rows = [row(GRADIENT, name, _gradient(5, 7, 6, name), **options) for name in ACTIVATIONS]
    for a in (False, True):
        for b in (False, True):
            make = _gradient(9, 4, 11, transpose_a=a, transpose_b=b)
            rows.append(row(GRADIENT, f"{'tn'[not a]}{'tn'[not b]}", make, **options))
    sizes = {"one": (1, 1, 1), "mnist": (64, 10, 128), "odd": (37, 131, 67), "empty": (0, 3, 4)}
    for id, size in sizes.items():
        rows.append(row(GRADIENT, id, _gradient(*size), **options))
    return [*rows, large(GRADIENT, _gradient(65_600, 3, 2))]


def _loss(n, k, classes, epsilon=1e-7, bias=True, labels="int32", low=0):
    def make(rng):
        inputs = [normal(rng, n, k), normal(rng, k, classes) / np.sqrt(k)]
        if bias:
            inputs.append(normal(rng, classes) / 4)
        at = rng.integers(low, classes - low, n).astype(labels)
        return [*inputs, at, normal(rng, n)], {"epsilon": epsilon}

    return make


def _losses():
    # p - 1 is left of a probability that was rounded, of logits that were rounded before.
    options = {
        "gradient": False,
        "tolerance": {"float16": 2.0**-5, "bfloat16": 2.0**-2},
    }
    rows = []
    sizes = {"small": (4, 5, 3), "mnist": (33, 100, 10), "two": (7, 20, 2), "many": (5, 9, 33)}
    for id, size in sizes.items():
        for bias in (True, False):
            for labels in ("int32", "int64"):
                make = _loss(*size, bias=bias, labels=labels)
                name = f"{id}_{labels}{'' if bias else '_no_bias'}"
                rows.append(row(LOSS, name, make, **options))
    rows.append(row(LOSS, "exact", _loss(12, 40, 10, epsilon=0.0), **options))
    rows.append(row(LOSS, "label_out_of_range", _loss(40, 8, 5, low=-2), **options))
    rows.append(row(LOSS, "empty", _loss(0, 4, 3), **options))
    rows.append(large(LOSS, _loss(65_600, 3, 4)))
    return rows


def _head(n, k, classes, activation="linear", rate=None, **options):
    def make(rng):
        (_, kernel, *others), attributes = _loss(n, k, classes, **options)(rng)
        alpha = ACTIVATIONS[activation]
        x = activation_outputs(rng, activation, alpha, n, k)
        inputs = [x, kernel, *others]
        attributes |= {"activation": activation, "activation_alpha": alpha}
        if rate is not None:
            inputs.append(rng.integers(-(2**63), 2**63, 2, dtype=np.int64))
            attributes |= {"rate": rate, "stream": int(rng.integers(0, 2**32))}
        return inputs, attributes

    return make


def _heads():
    # As for the loss, and products of the rounded gradient.
    options = {
        "gradient": False,
        "tolerance": {"float16": 2.0**-5, "bfloat16": 2.0**-2},
    }
    calls = {
        # Around what a thread, a warp, a block and a cluster take of the features, and with rows
        # for blocks that take one and several; ten classes, fewer, and more.
        "small": _head(4, 5, 3),
        "mnist": _head(33, 120, 10),
        "deep": _head(65, 520, 10, bias=False),
        "cluster": _head(133, 1602, 10, "relu"),
        "two": _head(7, 20, 2, "relu", labels="int64"),
        "sixteen": _head(150, 131, 16, bias=False),
        "thirty": _head(5, 270, 30),
        "many": _head(5, 9, 33),
        "exact": _head(12, 40, 10, epsilon=0.0),
        "label_out_of_range": _head(40, 8, 5, low=-2),
        "empty": _head(0, 4, 3),
    }
    for activation in ACTIVATIONS:
        calls[activation] = _head(6, 14, 10, activation)
        calls[f"{activation}_dropout"] = _head(6, 12, 10, activation, 0.5)
    for rate in (0.0, 0.25, 1.0):
        calls[f"dropout_{rate}"] = _head(9, 132, 10, rate=rate)
    calls["dropout_odd"] = _head(141, 61, 10, "relu", 0.25, bias=False)
    calls["dropout_cluster"] = _head(130, 1600, 10, rate=0.5, labels="int64")
    calls["dropout_empty"] = _head(0, 4, 3, rate=0.5)
    rows = [row(HEAD, id, make, **options) for id, make in calls.items()]
    return [*rows, large(HEAD, _head(65_600, 3, 4)), large(HEAD, _head(65_600, 4, 10), "ten")]


def _wgrad(n, k, m):
    return lambda rng: ([normal(rng, n, k), normal(rng, n, m)], {})


def _wgrads():
    sizes = {
        "one": (1, 1, 1),
        "mnist": (64, 128, 10),
        "one_sample": (1, 33, 7),
        "one_feature": (129, 1, 64),
        "one_unit": (7, 65, 1),
        "odd": (37, 131, 67),
        "no_samples": (0, 3, 4),
        "no_features": (5, 0, 4),
        "no_units": (5, 3, 0),
    }
    rows = [row(WGRAD, id, _wgrad(*size), gradient=False) for id, size in sizes.items()]
    return [*rows, large(WGRAD, _wgrad(65_600, 3, 2))]


CASES: list[Case] = [*_gradients(), *_losses(), *_heads(), *_wgrads()]


def _bad():
    a, b, y = zeros(4, 3), zeros(5, 3), zeros(4, 5)
    call = {
        "transpose_a": False,
        "transpose_b": True,
        "activation": "relu",
        "activation_alpha": 0.0,
    }
    v, t = ValueError, TypeError
    rows = [
        Bad(GRADIENT, [a, zeros(5, 2), y], call, v, f"{GRADIENT}: the inner extents of (4, 3)"),
        Bad(GRADIENT, [a, b, zeros(5, 4)], call, v, f"{GRADIENT}: the activation's output must"),
        Bad(GRADIENT, [zeros(1, 4, 3), b, y], call, v, f"{GRADIENT}: the first input must have 2"),
        Bad(GRADIENT, [a, b, y.astype("float64")], call, t, GRADIENT),
        Bad(GRADIENT, [a, b], call, v, f"{GRADIENT}: "),
        Bad(GRADIENT, [a, b, y], {**call, "activation": "gelu"}, v, "does not follow from its"),
    ]
    x, kernel, labels, gy = zeros(4, 3), zeros(3, 5), zeros(4, dtype="int32"), zeros(4)
    e = {"epsilon": 1e-7}
    rows += [
        Bad(LOSS, [x, zeros(2, 5), labels, gy], e, v, "the input has 3 features"),
        Bad(LOSS, [x, kernel, zeros(4), labels, gy], e, v, "the bias must have shape (5,)"),
        Bad(LOSS, [x, kernel, zeros(3, dtype="int32"), gy], e, v, "3 labels for 4 samples"),
        Bad(LOSS, [x, kernel, labels, zeros(3)], e, v, "the gradient must have shape (4,)"),
        Bad(LOSS, [x, kernel, labels], e, v, f"{LOSS}: "),
        Bad(LOSS, [x, kernel, labels, gy], {"epsilon": 0.7}, v, "epsilon must be in [0, 0.5)"),
    ]
    e |= {"activation": "linear", "activation_alpha": 0.0}
    drop, state = {**e, "rate": 0.5, "stream": 0}, zeros(2, dtype="int64")
    call = [x, kernel, labels, gy]
    rows += [
        Bad(HEAD, [x, zeros(2, 5), labels, gy], e, v, "the input has 3 features"),
        Bad(HEAD, [x, kernel, zeros(4), labels, gy], e, v, "the bias must have shape (5,)"),
        Bad(HEAD, [zeros(1, 4, 3), *call[1:]], e, v, f"{HEAD}: the input must have 2"),
        Bad(HEAD, call[:-1], e, v, f"{HEAD}: "),
        Bad(HEAD, call, drop, v, f"{HEAD}: "),
        Bad(HEAD, [*call, labels], drop, v, "the random state must be int64 (2,)"),
        Bad(HEAD, [*call, state], {**drop, "rate": 1.5}, v, "rate must be in [0, 1]"),
        Bad(HEAD, call, {**e, "activation": "gelu"}, v, f"{HEAD}: the gradient of gelu does not"),
    ]
    g = zeros(4, 5)
    rows += [
        Bad(WGRAD, [x, zeros(3, 5)], {}, v, f"{WGRAD}: the input (4, 3) and the gradient (3, 5)"),
        Bad(WGRAD, [zeros(1, 4, 3), g], {}, v, f"{WGRAD}: the input must have 2"),
        Bad(WGRAD, [x, zeros(4)], {}, v, f"{WGRAD}: the gradient must have 2"),
        Bad(WGRAD, [x, g.astype("float64")], {}, t, WGRAD),
        Bad(WGRAD, [labels.reshape(4, 1), labels.reshape(4, 1)], {}, t, f"{WGRAD}: the input"),
        Bad(WGRAD, [x], {}, v, f"{WGRAD}: "),
    ]
    return rows


BAD = _bad()
