"""Calls of the fusion that adds a shortcut, and relu, to what a convolution gives."""

from __future__ import annotations

import numpy as np

from .case import normal, row

SAME_3X3 = (1, 1, 1, 1)


def _end_of_block(x, kernel, strides=1, padding=(0, 0, 0, 0), groups=1, relu=True):
    def make(rng):
        sizes = [
            (n + before + after - taps) // strides + 1
            for n, before, after, taps in zip(
                x[1:3], padding[::2], padding[1::2], kernel[:2], strict=True
            )
        ]
        arrays = [
            normal(rng, *x),
            normal(rng, *kernel) / np.sqrt(np.prod(kernel[:3])),
            normal(rng, kernel[3]) / 4,
            normal(rng, x[0], *sizes, kernel[3]),
        ]
        attributes = {
            "strides": [strides, strides],
            "padding": list(padding),
            "dilations": [1, 1],
            "groups": groups,
            "relu": relu,
        }
        return arrays, attributes

    return make


# Small ones, and channels that are no multiples of 8, get no kernel of this fusion.
CASES = [
    row("conv2d_add", id, make)
    for id, make in {
        "pointwise": _end_of_block((5, 17, 15, 64), (1, 1, 64, 256)),
        "pointwise_linear": _end_of_block((5, 17, 15, 96), (1, 1, 96, 184), relu=False),
        "same": _end_of_block((2, 15, 17, 64), (3, 3, 64, 72), padding=SAME_3X3),
        "same_linear": _end_of_block((2, 15, 17, 64), (3, 3, 64, 64), padding=SAME_3X3, relu=False),
        "strided": _end_of_block((8, 18, 20, 128), (1, 1, 128, 256), strides=2),
        "grouped": _end_of_block((4, 15, 17, 64), (3, 3, 32, 64), padding=SAME_3X3, groups=2),
        "odd_channels": _end_of_block((4, 15, 17, 66), (3, 3, 66, 61), padding=SAME_3X3),
        "small": _end_of_block((2, 5, 7, 8), (3, 3, 8, 16), padding=SAME_3X3),
        "one_image": _end_of_block((1, 9, 11, 256), (3, 3, 256, 128), padding=SAME_3X3),
    }.items()
]
