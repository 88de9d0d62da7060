"""Rows of the ops that take batches out of a data set and store results."""

from __future__ import annotations

import numpy as np

from .case import INTEGERS, Bad, Case, integers, large, normal, row, zeros


def _take_batch():
    def make(samples, step, batch_size, *sample_shape):
        def call(rng):
            order = rng.permutation(samples).astype("int32")
            data = normal(rng, samples, *sample_shape)
            return [data, order, np.int64(step)], {"batch_size": batch_size}

        return call

    def images(rng, dtype):
        data = integers(rng, dtype, 20, 5, 5, low=0)
        return [data, rng.permutation(20).astype("int32"), np.int64(2)], {"batch_size": 4}

    return [
        row("take_batch", "first", make(10, 0, 4, 3)),
        row("take_batch", "last_partial", make(10, 2, 4, 3, 2)),
        row("take_batch", "past_the_end", make(5, 9, 2, 1)),
        row("take_batch", "one_sample", make(7, 3, 1)),
        row("take_batch", "larger_than_data", make(3, 0, 8, 2)),
        Case("take_batch", "integers", images, dtypes=INTEGERS, gradient=False),
        large("take_batch", make(70_000, 0, 66_000, 2)),
    ]


def _put_batch():
    def make(rows, batch_size, step, *shape):
        def call(rng):
            buffer, batch = normal(rng, rows, *shape), normal(rng, batch_size, *shape)
            return [buffer, batch, np.int64(step)], {}

        return call

    def images(rng, dtype):
        buffer = integers(rng, dtype, 21, 5, 3, low=0)
        return [buffer, integers(rng, dtype, 4, 5, 3, low=0), np.int64(5)], {}

    flags = lambda rng, dtype: (  # noqa: E731
        [rng.random((9, 3)) < 0.5, rng.random((2, 3)) < 0.5, np.int64(3)],
        {},
    )
    return [
        row("put_batch", "first", make(10, 4, 0, 3)),
        row("put_batch", "last", make(12, 4, 2, 4, 2)),
        row("put_batch", "last_partial", make(10, 4, 2, 3)),
        row("put_batch", "one_behind_the_end", make(12, 4, 3, 3)),
        row("put_batch", "far_behind_the_end", make(5, 2, 2**62, 1)),
        row("put_batch", "before_the_beginning", make(5, 2, -1, 3)),
        row("put_batch", "far_before_the_beginning", make(5, 2, -(2**62), 3)),
        row("put_batch", "larger_than_the_buffer", make(3, 7, 0, 2)),
        row("put_batch", "no_rows_to_put", make(3, 0, 1, 2)),
        row("put_batch", "no_rows_to_put_into", make(0, 2, 0, 2)),
        row("put_batch", "no_columns", make(4, 2, 1, 0)),
        row("put_batch", "numbers", make(7, 3, 1)),
        Case("put_batch", "integers", images, dtypes=INTEGERS, gradient=False),
        Case("put_batch", "flags", flags, dtypes=("bool",), gradient=False),
        large("put_batch", make(132_000, 66_000, 1, 2)),
    ]


CASES = [*_take_batch(), *_put_batch()]

_MATRIX = zeros(2, 3)
_WHOLE = zeros(2, 3, dtype="int32")
_INDEX = zeros(2, dtype="int32")
_STEP = np.int64(0)
_NOTHING = zeros(0, 3)

BAD = [
    Bad(
        "take_batch",
        [_MATRIX, zeros(4), _STEP],
        {"batch_size": 2},
        TypeError,
        "take_batch: the order must be int32",
    ),
    Bad(
        "take_batch",
        [_MATRIX, _INDEX, zeros()],
        {"batch_size": 1},
        ValueError,
        "must be int64 ()",
    ),
    Bad(
        "take_batch",
        [_MATRIX, zeros(2, dtype="int64"), _STEP],
        {"batch_size": 1},
        TypeError,
        "the order must be int32",
    ),
    Bad(
        "take_batch",
        [_MATRIX, _INDEX, _STEP],
        {"batch_size": 0},
        ValueError,
        "batch_size must be",
    ),
    Bad(
        "take_batch",
        [_NOTHING, _INDEX, _STEP],
        {"batch_size": 1},
        ValueError,
        "nothing to select",
    ),
    Bad("put_batch", [zeros(), zeros(), _STEP], {}, ValueError, "must have at least 1 axis"),
    Bad("put_batch", [_MATRIX, _WHOLE, _STEP], {}, TypeError, "put_batch"),
    Bad("put_batch", [_MATRIX, zeros(3), _STEP], {}, ValueError, "put_batch: the batch"),
    Bad(
        "put_batch",
        [_MATRIX, zeros(2, 4), _STEP],
        {},
        ValueError,
        "put_batch: the batch must have shape (2, 3)",
    ),
    Bad("put_batch", [_MATRIX, _MATRIX, zeros()], {}, ValueError, "must be int64 ()"),
]
