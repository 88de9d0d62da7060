"""Calls of the fusions that join a product with what follows it or stands beside it."""

from __future__ import annotations

import numpy as np

from .case import Case, away_from, normal, row
from .reference import activate

GRADIENT, LOSS = "matmul_activation_grad", "dense_sparse_softmax_cross_entropy"
HEAD, WGRAD = "dense_sparse_softmax_cross_entropy_dgrad", "dense_wgrad"
# The gradients of these follow from their outputs, and the parameters are exact in every dtype.
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
    """Returns the activation's outputs for numbers away from its kinks."""
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
    rows = [
        row(GRADIENT, name, _gradient(5, 7, 6, name)) for name in ACTIVATIONS if name != "linear"
    ]
    for a in (False, True):
        for b in (False, True):
            make = _gradient(9, 4, 11, transpose_a=a, transpose_b=b)
            rows.append(row(GRADIENT, f"{'tn'[not a]}{'tn'[not b]}", make))
    sizes = {"one": (1, 1, 1), "mnist": (64, 10, 128), "odd": (37, 131, 67)}
    for id, size in sizes.items():
        rows.append(row(GRADIENT, id, _gradient(*size)))
    return [*rows, row(GRADIENT, "large", _gradient(65_600, 3, 2))]


def _loss(n, k, classes, epsilon=1e-7, bias=True, labels="int32", low=0):
    def make(rng):
        inputs = [normal(rng, n, k), normal(rng, k, classes) / np.sqrt(k)]
        if bias:
            inputs.append(normal(rng, classes) / 4)
        at = rng.integers(low, classes - low, n).astype(labels)
        return [*inputs, at, normal(rng, n)], {"epsilon": epsilon}

    return make


def _losses():
    rows = []
    sizes = {"small": (4, 5, 3), "mnist": (33, 100, 10), "two": (7, 20, 2), "many": (5, 9, 33)}
    for id, size in sizes.items():
        for bias in (True, False):
            for labels in ("int32", "int64"):
                make = _loss(*size, bias=bias, labels=labels)
                name = f"{id}_{labels}{'' if bias else '_no_bias'}"
                rows.append(row(LOSS, name, make))
    rows.append(row(LOSS, "exact", _loss(12, 40, 10, epsilon=0.0)))
    rows.append(row(LOSS, "label_out_of_range", _loss(40, 8, 5, low=-2)))
    rows.append(row(LOSS, "large", _loss(65_600, 3, 4)))
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
    calls = {
        # The numbers of features lie around what a thread, a warp, a block and a cluster take.
        # Blocks take one row or several. There are ten classes, fewer, or more.
        "small": _head(4, 5, 3),
        "mnist": _head(33, 120, 10),
        "deep": _head(65, 520, 10, bias=False),
        "cluster": _head(133, 1602, 10, "relu"),
        "two": _head(7, 20, 2, "relu", labels="int64"),
        "nine": _head(133, 1602, 9, "relu"),
        "nine_deep": _head(3, 8190, 9, labels="int64"),
        "eleven": _head(150, 131, 11, "relu"),
        "sixteen": _head(150, 131, 16, bias=False),
        "thirty_two": _head(5, 270, 32),
        "thirty": _head(5, 270, 30),
        "many": _head(5, 9, 33),
        "exact": _head(12, 40, 10, epsilon=0.0),
        "label_out_of_range": _head(40, 8, 5, low=-2),
    }
    for activation in ACTIVATIONS:
        calls[activation] = _head(6, 14, 10, activation)
        calls[f"{activation}_dropout"] = _head(6, 12, 10, activation, 0.5)
    for rate in (0.0, 0.25, 1.0):
        calls[f"dropout_{rate}"] = _head(9, 132, 10, rate=rate)
    calls["dropout_odd"] = _head(141, 61, 10, "relu", 0.25, bias=False)
    calls["dropout_cluster"] = _head(130, 1600, 10, rate=0.5, labels="int64")
    calls |= {"large": _head(65_600, 3, 4), "large_ten": _head(65_600, 4, 10)}
    return [row(HEAD, id, make) for id, make in calls.items()]


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
    }
    rows = [row(WGRAD, id, _wgrad(*size)) for id, size in sizes.items()]
    return [*rows, row(WGRAD, "large", _wgrad(65_600, 3, 2))]


CASES: list[Case] = [*_gradients(), *_losses(), *_heads(), *_wgrads()]
