"""Calls of the fusion that takes the batches of several arrays."""

from __future__ import annotations

import numpy as np

from .case import integers, large, normal, row

TAKE = "take_batches"


def _rows():
    def make(samples, step, batch_size, *arrays):
        """Each of `arrays` is the shape of a sample; bytes are the second of the arrays."""

        def call(rng):
            data = [normal(rng, samples, *shape) for shape in arrays]
            data.insert(1, integers(rng, "uint8", samples, 5, low=0, high=256))
            data += [rng.permutation(samples).astype("int32"), np.int64(step)]
            return data, {"batch_size": batch_size}

        return call

    return [
        row(TAKE, "images_and_targets", make(10, 1, 4, (4, 4, 1), ())),
        row(TAKE, "odd_rows", make(9, 2, 4, (5, 3), (3,), (2, 2))),
        row(TAKE, "one", make(7, 3, 2, (3,))),
        row(TAKE, "past_the_end", make(5, 9, 2, (2,), (5, 3))),
        row(TAKE, "many", make(6, 1, 2, *[(i,) for i in range(11)])),
        large(TAKE, make(70_000, 0, 66_000, (2,), (1,))),
    ]


CASES = _rows()
