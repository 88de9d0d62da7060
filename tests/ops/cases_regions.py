"""Rows of groups of nodes that run as one kernel. Each is written twice, as a body and in NumPy."""

from __future__ import annotations

import numpy as np

from .case import Bad, normal, row, zeros
from .cases_loops import MEANING, body, call
from .reference import REFERENCES, reference


@reference("region")
def region(*inputs, bodies, kind, domain, columns):
    return tuple(MEANING[bodies[0]](*inputs))


def _attributes(body, domain, kind="map", columns=None):
    if columns is None:
        columns = domain[-1] if domain else 1
    return {"bodies": [body], "kind": kind, "domain": list(domain), "columns": columns}


def _chain(rng, dtype):
    """The chain has broadcast operands and a constant, and a result in the middle is read too."""

    def build(graph, x, vector, scalar):
        y = call(graph, "add", call(graph, "multiply", x, vector), graph.full([], dtype, 0.5))
        y = call(graph, "leaky_relu", y, negative_slope=0.1)
        clipped = call(graph, "clip", y, min=-1.0, max=1.5)
        return [call(graph, "subtract", clipped, scalar), y]

    def meaning(x, vector, scalar):
        y = REFERENCES["leaky_relu"](x * vector + 0.5, negative_slope=0.1)
        return [np.clip(y, -1.0, 1.5) - scalar, y]

    chain = body("chain", dtype, [(6, 5), (5,), (1,)], build, meaning)
    return [normal(rng, 6, 5), normal(rng, 5), normal(rng, 1)], _attributes(chain, (6, 5))


def _select(rng, dtype):
    def build(graph, a, b):
        larger = call(graph, "greater", a, b)
        return [call(graph, "tanh", call(graph, "where", larger, a, b))]

    select = body("select", dtype, [(70_000,)] * 2, build, lambda a, b: [np.tanh(np.maximum(a, b))])
    return [normal(rng, 70_000), normal(rng, 70_000)], _attributes(select, (70_000,))


def _scalars(rng, dtype, shape=()):
    """Losses and metrics end like this: a sum, a count, and whether the loss is finite."""

    def build(graph, loss, total, count):
        scaled = call(graph, "multiply", loss, graph.full([], dtype, 64.0))
        total_after = call(graph, "add", total, scaled)
        finite = call(graph, "isfinite", scaled)
        counted = call(graph, "add", count, call(graph, "cast", finite, dtype="int64"))
        less = call(graph, "add", counted, graph.full([], "int64", -3.0))
        kept = call(graph, "where", finite, total_after, total)
        return [total_after, less, kept, finite]

    def meaning(loss, total, count):
        finite = np.isfinite(loss * 64)
        after = total + loss * 64
        return [after, count + finite - 3, np.where(finite, after, total), finite]

    shapes = [shape, shape, (shape, "int64")]
    made = body(f"scalars{shape}", dtype, shapes, build, meaning)
    count = np.asarray(rng.integers(2**40, 2**41, shape))
    return [normal(rng, *shape), normal(rng, *shape), count], _attributes(made, shape)


def _broadcast_constant(rng, dtype):
    """The gradient is all ones, as the sum of a loss gives it."""

    def build(graph, y):
        ones = call(graph, "broadcast_to", graph.full([1, 1], dtype, 1.0), shape=[7, 9])
        return [call(graph, "relu_grad", ones, y)]

    made = body("ones", dtype, [(7, 9)], build, lambda y: [(y > 0).astype(np.float64)])
    return [normal(rng, 7, 9)], _attributes(made, (7, 9))


def _softmax(rng, dtype):
    def build(graph, x):
        largest = call(graph, "reduce_max", x, axes=[-1], keepdims=True)
        powers = call(graph, "exp", call(graph, "subtract", x, largest))
        total = call(graph, "reduce_sum", powers, axes=[-1], keepdims=True)
        return [call(graph, "divide", powers, total)]

    softmax = body(
        "softmax", dtype, [(4, 6, 17)], build, lambda x: [REFERENCES["softmax"](x, axis=-1)]
    )
    return [3 * normal(rng, 4, 6, 17)], _attributes(softmax, (4, 6, 17), "rows")


def _normalized_rows(rng, dtype):
    """Normalizes over two axes; a row's mean is a result, and each column has a scale."""

    def build(graph, x, scale):
        mean = call(graph, "reduce_mean", x, axes=[1, 2], keepdims=False)
        kept = call(graph, "reshape", mean, shape=[5, 1, 1])
        centered = call(graph, "subtract", x, kept)
        variance = call(
            graph, "reduce_mean", call(graph, "square", centered), axes=[1, 2], keepdims=True
        )
        inverse = call(graph, "rsqrt", call(graph, "add", variance, graph.full([], dtype, 0.25)))
        return [call(graph, "multiply", call(graph, "multiply", centered, inverse), scale), mean]

    def meaning(x, scale):
        mean = x.mean(axis=(1, 2), keepdims=True)
        variance = np.square(x - mean).mean(axis=(1, 2), keepdims=True)
        return [(x - mean) / np.sqrt(variance + 0.25) * scale, mean.reshape(5)]

    made = body("normalized", dtype, [(5, 3, 8), (8,)], build, meaning)
    return [normal(rng, 5, 3, 8), normal(rng, 8)], _attributes(made, (5, 3, 8), "rows", 24)


def _sums_of_columns(rng, dtype):
    """Computes the gradients of a scale and a shift, and of the activation before them."""

    def build(graph, gy, y, z):
        g = call(graph, "relu_grad", gy, y)
        over = {"axes": [0, 1], "keepdims": False}
        return [
            g,
            call(graph, "reduce_sum", call(graph, "multiply", g, z), **over),
            call(graph, "reduce_sum", g, **over),
        ]

    def meaning(gy, y, z):
        g = np.where(y > 0, gy, 0)
        return [g, (g * z).sum(axis=(0, 1)), g.sum(axis=(0, 1))]

    made = body("sums", dtype, [(9, 7, 5)] * 3, build, meaning)
    # The numbers are positive, so that sums do not cancel.
    inputs = [rng.uniform(0.5, 1, (9, 7, 5)), normal(rng, 9, 7, 5), rng.uniform(0.5, 1, (9, 7, 5))]
    return inputs, _attributes(made, (9, 7, 5), "columns")


def _statistics(rng, dtype):
    """Computes statistics of an activation, which is a result too."""

    def build(graph, x):
        y = call(graph, "elu", x, alpha=1.0)
        return [*graph.apply("column_moments", [y], {}), y]

    def meaning(x):
        y = REFERENCES["elu"](x, alpha=1.0)
        return [*REFERENCES["column_moments"](y), y]

    made = body("statistics", dtype, [(11, 3, 6)], build, meaning)
    return [normal(rng, 11, 3, 6) + 2.0], _attributes(made, (11, 3, 6), "columns")


# Every result is rounded to its dtype, as the separate ops would do. These are a few roundings.
_ROUNDINGS = {
    "gradient": False,
    "tolerance": {"float16": 2.0**-8, "bfloat16": 2.0**-5},
    "reason": "each of the ops rounds its result to 16 bits",
}

CASES = [
    row("region", "chain", _chain, **_ROUNDINGS),
    row("region", "select", _select, **_ROUNDINGS),
    row("region", "scalars", _scalars, **_ROUNDINGS),
    row("region", "three", lambda rng, dtype: _scalars(rng, dtype, (3,)), **_ROUNDINGS),
    row("region", "broadcast_constant", _broadcast_constant, **_ROUNDINGS),
    row("region", "softmax", _softmax, **_ROUNDINGS),
    row("region", "normalized_rows", _normalized_rows, **_ROUNDINGS),
    row("region", "sums_of_columns", _sums_of_columns, **_ROUNDINGS),
    row("region", "statistics", _statistics, **_ROUNDINGS),
]


def _bad(build, message, kind="map", columns=5, shapes=((4, 5),)):
    made = body(message, "float32", shapes, build, None)
    return Bad(
        "region",
        [zeros(*shape) for shape in shapes],
        _attributes(made, (4, 5), kind, columns),
        ValueError,
        message,
    )


def _same(graph, x):
    return [call(graph, "exp", x)]


def _last(graph, op, x, keepdims=True):
    return call(graph, op, x, axes=[-1], keepdims=keepdims)


def _first(graph, op, x, keepdims=True):
    return call(graph, op, x, axes=[0], keepdims=keepdims)


BAD = [
    _bad(_same, 'kind must be "map", "rows" or "columns", received "cells"', "cells"),
    _bad(_same, "a domain of shape (4, 5) has no matrix of 3 columns", columns=3),
    _bad(
        lambda graph, x: [call(graph, "transpose", x, permutation=[1, 0])],
        "transpose of float32 (4, 5) can't be in one of kind map over (4, 5): its operand is "
        "not read in stretches of an input",
    ),
    _bad(
        lambda graph, x: [_last(graph, "reduce_sum", x)],
        "reduce_sum of float32 (4, 5) can't be in one of kind map over (4, 5): it is no op of this",
    ),
    _bad(
        lambda graph, x: [_last(graph, "reduce_sum", x)],
        "reduce_sum of float32 (4, 5) can't be in one of kind columns over (4, 5): it is not over",
        "columns",
    ),
    _bad(
        lambda graph, x: [_first(graph, "reduce_max", x)],
        "reduce_max of float32 (4, 5) can't be in one of kind rows over (4, 5): it is not over",
        "rows",
    ),
    _bad(
        lambda graph, x: [call(graph, "subtract", x, _first(graph, "reduce_sum", x))],
        "subtract of float32 (4, 5), float32 (1, 5) can't be in one of kind columns over (4, 5): "
        "nothing in it may read what it sums up",
        "columns",
    ),
]  # fmt: skip
