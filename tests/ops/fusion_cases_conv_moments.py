"""Calls of the fusion that gives the statistics of what a convolution gives."""

from __future__ import annotations

import numpy as np

from .case import normal, row


def _normalized(x, kernel, padding=(1, 1, 1, 1), has_bias=False):
    def make(rng):
        arrays = [normal(rng, *x), normal(rng, *kernel) / np.sqrt(np.prod(kernel[:3]))]
        if has_bias:
            arrays.append(3 * normal(rng, kernel[3]))
        attributes = {
            "strides": [1, 1],
            "padding": list(padding),
            "dilations": [1, 1],
            "groups": 1,
        }
        return arrays, attributes

    return make


# With 2^29 products and more, in 16 bits, Hopper has a kernel of this fusion: several blocks and
# one, rows and columns that are cut with a rest and without, filters that fill no block.
LARGE = {
    "whole": _normalized((16, 32, 32, 64), (3, 3, 64, 64)),
    "rests": _normalized((13, 37, 53, 64), (3, 3, 64, 72), has_bias=True),
    "many_filters": _normalized((3, 41, 61, 64), (3, 3, 64, 136), (0, 0, 0, 0)),
    "one_side": _normalized((9, 56, 51, 56), (2, 3, 56, 64), (0, 1, 2, 0), has_bias=True),
}
CASES = [
    row("conv2d_moments", "small", _normalized((2, 5, 7, 8), (3, 3, 8, 16))),
    *(
        row("conv2d_moments", id, make, dtypes=("bfloat16", "float16"), gradient=False)
        for id, make in LARGE.items()
    ),
]
