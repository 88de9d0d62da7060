"""Calls of the fusion that counts how often a classifier is right."""

from __future__ import annotations

import numpy as np

from .case import FLOATS, Case, few_values, normal, row

COUNT = "count_matches"
LABELS = ("int32", "int64", "float32")


def labels_of(rng, scores, dtype="int32", share=0.5):
    """Returns the positions of the largest scores, except for a random share of the rows."""
    n, classes = scores.shape
    best = np.argmax(scores, axis=1) if n else np.zeros(0)
    return np.where(rng.random(n) < share, rng.integers(0, classes, n), best).astype(dtype)


def _count(n, classes, labels="int32", scores=normal):
    def make(rng):
        drawn = np.atleast_2d(scores(rng, n, classes)).astype("float16").astype("float64")
        return [drawn, labels_of(rng, drawn, labels)], {}

    return make


def with_nan(rng, *shape):
    """Draws rows with zero to several NaN; the very first and the very last number are NaN too."""
    x = few_values(rng, *shape)
    x[rng.random(shape) < 1.5 / shape[1]] = np.nan
    x[0, 0] = x[-1, -1] = np.nan
    return x


def infinite(rng, *shape):
    return rng.choice([-np.inf, -1.0, 1.0, np.inf], shape)


def _no_class(labels):
    """Makes labels that are no class, and some that are."""

    def make(rng):
        scores = few_values(rng, 60, 7)
        at = labels_of(rng, scores, labels)
        at[::3] = rng.choice([-1, 7, -8, 300], 20)
        if labels == "float32":
            at[1::3] += rng.choice([0.5, 1e-3, np.nan, np.inf], 20).astype(labels)
        return [scores, at], {}

    return make


def _rows():
    # A row is taken by one thread, by a few threads or by a warp. The rows are taken by one block
    # at once, by one block in turns, or by several blocks.
    sizes = {
        "one": (1, 1),
        "two": (7, 2),
        "binary_odd": (33, 5),
        "mnist": (64, 10),
        "odd": (37, 131),
        "imagenet": (128, 1000),
        "tall": (1500, 10),
        "taller": (5003, 17),
        "wide": (5, 4099),
        "large": (65_600, 3),
        "large_row": (3, 65_600),
    }
    rows = [
        row(COUNT, f"{id}_{labels}", _count(*size, labels), dtypes=FLOATS)
        for id, size in sizes.items()
        for labels in LABELS
    ]
    for id, scores in {"ties": few_values, "nan": with_nan, "infinite": infinite}.items():
        for n, classes in ((50, 3), (41, 40), (700, 9)):
            rows.append(row(COUNT, f"{id}_{n}", _count(n, classes, scores=scores), dtypes=FLOATS))
    return rows + [row(COUNT, f"no_class_{name}", _no_class(name)) for name in LABELS]


CASES: list[Case] = _rows()
