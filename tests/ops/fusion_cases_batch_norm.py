"""Calls of a CPU's fusions for batch normalization of 16 bits, whose parameters are float32."""

from __future__ import annotations

import numpy as np

from .case import normal, row


def _of_channels(rng, shape):
    return normal(rng, shape[-1]).astype(np.float32)


def _forward(*shape):
    def make(rng):
        arrays = [normal(rng, *shape) + normal(rng, shape[-1]), *(_of_channels(rng, shape),) * 2]
        return arrays, {"epsilon": 1e-3}

    return make


def _gradient(*shape):
    def make(rng):
        gamma, mean = (_of_channels(rng, shape) for _ in range(2))
        inverse = 0.5 + np.abs(_of_channels(rng, shape))
        return [normal(rng, *shape), normal(rng, *shape), gamma, mean, inverse], {}

    return make


NARROW = ("bfloat16", "float16")
SHAPES = {"rows": (40, 17), "images": (3, 7, 5, 33), "wide": (4, 4096), "wider": (4, 4097)}
CASES = [
    row(f"batch_norm{kind}_16_bits", id, make(*shape), dtypes=NARROW, gradient=False)
    for id, shape in SHAPES.items()
    for kind, make in (("", _forward), ("_grad", _gradient))
]
