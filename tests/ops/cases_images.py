"""Rows of the ops on images."""

from __future__ import annotations

import numpy as np

from .case import Bad, large, normal, row, zeros


def _sizes(shape, size, method="bilinear", antialias=False):
    return shape, {"size": list(size), "method": method, "antialias": antialias}


SIZES = {
    "double": _sizes((2, 5, 4, 3), (10, 8)),
    "odd": _sizes((2, 7, 9, 5), (11, 6)),
    "smaller": _sizes((1, 13, 11, 2), (5, 4)),
    "much_larger": _sizes((1, 3, 2, 8), (50, 41)),
    "same_height": _sizes((2, 5, 7, 3), (5, 9)),
    "same_width": _sizes((2, 5, 7, 3), (8, 7)),
    "same": _sizes((2, 3, 4, 2), (3, 4)),
    "from_a_pixel": _sizes((2, 1, 1, 3), (4, 5)),
    "to_a_pixel": _sizes((2, 6, 7, 3), (1, 1)),
    "one_channel": _sizes((3, 12, 19, 1), (9, 31)),
    "many_channels": _sizes((1, 6, 5, 67), (9, 11)),
    "aligned_channels": _sizes((2, 6, 5, 64), (12, 10)),
    "blocks_of_channels": _sizes((1, 3, 5, 530), (4, 9)),
    # On a CPU rows are made in several pieces, and far pixels are left out.
    "wide": _sizes((1, 2, 800, 16), (3, 1500)),
    "far_pixels": _sizes((1, 40, 900, 5), (3, 7)),
    "antialias": _sizes((2, 13, 11, 3), (5, 4), antialias=True),
    "antialias_larger": _sizes((1, 5, 4, 3), (9, 11), antialias=True),
    "antialias_one_axis": _sizes((1, 5, 24, 4), (9, 5), "bicubic", True),
    "bicubic": _sizes((2, 7, 5, 3), (9, 12), "bicubic"),
    "bicubic_on_pixels": _sizes((1, 9, 15, 4), (3, 5), "bicubic"),
    "bicubic_antialias": _sizes((1, 17, 12, 16), (4, 5), "bicubic", True),
    "lanczos3": _sizes((1, 9, 8, 3), (5, 13), "lanczos3"),
    "lanczos3_antialias": _sizes((1, 20, 18, 8), (6, 5), "lanczos3", True),
    "lanczos5": _sizes((1, 6, 11, 2), (13, 7), "lanczos5"),
    # Windows are longer than what is made at a time.
    "long_windows": _sizes((1, 70, 1700, 12), (2, 3), "lanczos5", True),
    "nearest": _sizes((2, 7, 5, 3), (10, 4), "nearest"),
    "nearest_larger": _sizes((1, 3, 4, 8), (9, 8), "nearest", True),
    "nearest_one_channel": _sizes((2, 11, 13, 1), (4, 17), "nearest"),
    "nearest_many_channels": _sizes((1, 4, 3, 37), (7, 3), "nearest"),
    "empty_batch": _sizes((0, 4, 3, 2), (5, 6)),
    "no_channels": _sizes((2, 4, 3, 0), (5, 6)),
    "large": _sizes((65_600, 2, 3, 1), (3, 2)),
}
_METHODS = ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5")


def _draw_sizes(rng):
    n, h, w, c, new_h, new_w = (int(i) for i in rng.integers(1, [4, 20, 20, 20, 20, 20]))
    return _sizes((n, h, w, c), (new_h, new_w), str(rng.choice(_METHODS)), bool(rng.integers(2)))


def _call(op, rng, sizes):
    shape, attributes = sizes
    if op == "resize2d":
        return [normal(rng, *shape)], attributes
    gradient = normal(rng, shape[0], *attributes["size"], shape[3])
    return [gradient], {**attributes, "input_shape": list(shape)}


def _infinite(rng):
    """What is infinite or no number must not get into pixels whose window it is not in."""
    shape, attributes = SIZES["odd"]
    x = normal(rng, *shape)
    x[:, 2, 3, :3] = [np.inf, -np.inf, np.nan]
    return [x], attributes


def _rows():
    rows = [row("resize2d", "infinite", _infinite, gradient=False)]
    for op in ("resize2d", "resize2d_grad"):
        for id, sizes in SIZES.items():
            make = lambda rng, op=op, sizes=sizes: _call(op, rng, sizes)  # noqa: E731
            rows.append(large(op, make) if id == "large" else row(op, id, make))
        for i in range(4):
            make = lambda rng, op=op: _call(op, rng, _draw_sizes(rng))  # noqa: E731
            rows.append(row(op, f"drawn_{i}", make))
    return rows


CASES = _rows()

_GIVEN = {"size": [4, 5], "method": "bilinear", "antialias": False}
_X, _GY = zeros(1, 3, 2, 2), zeros(1, 4, 5, 2)
_SHAPE = {"input_shape": [1, 3, 2, 2]}


def _bad(message, x=_X, error=ValueError, **changed):
    return Bad("resize2d", [x], {**_GIVEN, **changed}, error, f"resize2d: {message}")


def _bad_grad(message, gy=_GY, error=ValueError, **changed):
    attributes = {**_GIVEN, **_SHAPE, **changed}
    return Bad("resize2d_grad", [gy], attributes, error, f"resize2d_grad: {message}")


BAD = [
    _bad("the input must have 4 axes", zeros(3, 2, 2)),
    _bad("the input must be", zeros(1, 3, 2, 2, dtype="int32"), TypeError),
    _bad("heights and widths must be from 1 to 16777216", zeros(1, 0, 2, 2)),
    _bad("heights and widths must be from 1 to 16777216", size=[4, 1 << 30]),
    _bad("", size=[4, 0]),
    _bad("", size=[4]),
    _bad("method must be bilinear, nearest, bicubic, lanczos3 or lanczos5", method="cubic"),
    _bad_grad("the gradient must have shape (1, 4, 5, 2)", zeros(1, 3, 5, 2)),
    _bad_grad("the gradient must be", zeros(1, 4, 5, 2, dtype="uint8"), TypeError),
    _bad_grad("method must be bilinear", method=""),
    _bad_grad("", input_shape=[1, 3, 2]),
    _bad_grad("heights and widths must be", input_shape=[1, 3, 0, 2]),
]
