"""Weights that resize an axis of pixels, computed by NumPy on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn import _core, file_budget

Array = np.ndarray[Any, Any]

METHODS = ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5")
# These methods exist for images that are read from a folder.
FOLDER_METHODS = (*METHODS, "area", "gaussian", "mitchellcubic")


def _triangle(x: Array) -> Array:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: Array, a: float) -> Array:
    """Keys' cubic: 1 at 0, 0 at the other integers, 0 from 2 on."""
    x = np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(x: Array, radius: float) -> Array:
    return np.where(np.abs(x) < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


def _gaussian(x: Array) -> Array:
    return np.where(np.abs(x) < 1.5, np.exp(-2.0 * x * x), 0.0)


def _mitchell(x: Array) -> Array:
    """The cubic of Mitchell and Netravali with B = C = 1/3."""
    x = np.abs(x)
    near = (7.0 / 6.0 * x - 2.0) * x * x + 8.0 / 9.0
    far = ((-7.0 / 18.0 * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


_KERNELS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "bilinear": (_triangle, 1.0),
    "bicubic": (lambda x: _cubic(x, -0.5), 2.0),
    "lanczos3": (lambda x: _lanczos(x, 3.0), 3.0),
    "lanczos5": (lambda x: _lanczos(x, 5.0), 5.0),
    "gaussian": (_gaussian, 1.5),
    "mitchellcubic": (_mitchell, 2.0),
}


@functools.lru_cache(maxsize=256)
def weights(size: int, new_size: int, method: str, antialias: bool = False) -> Array:
    """The matrix (new_size, size) that brings one axis to a new size; its rows sum to 1.

    Pixels are areas with their centers at 0.5, 1.5, ... Beyond the border lies the border's pixel
    for "bilinear" and "bicubic" without antialiasing (with a = -0.75 for the cubic, as PyTorch
    has it); elsewhere nothing does, and the weights of what is inside are scaled to sum 1.

    Args:
        size: Pixels of the input.
        new_size: Pixels of the output.
        method: One of `FOLDER_METHODS`.
        antialias: Whether the window grows where the image shrinks, for the methods with one
            ("nearest" and "area" ignore it).
    """
    file_budget.check_positions(size * new_size, "the weights of resized images")
    scale = size / new_size
    if method == "nearest":
        # As in PyTorch, positions are float32, so that both choose the same one of two equally near
        # pixels.
        step = np.float32(size) / np.float32(new_size)
        at = np.floor((np.arange(new_size, dtype="float32") + np.float32(0.5)) * step)
        return _read_only(_indicator(np.minimum(at.astype("int64"), size - 1), size))
    if method == "area":
        edges = np.arange(new_size + 1) * scale
        first, last = np.arange(size), np.arange(1, size + 1)
        shared = np.minimum(edges[1:, None], last) - np.maximum(edges[:-1, None], first)
        return _read_only(np.maximum(shared, 0.0) / scale)
    centers = (np.arange(new_size) + 0.5) * scale
    if method in ("bilinear", "bicubic") and not antialias:
        return _read_only(_repeating_border(centers - 0.5, size, method))
    kernel, radius = _KERNELS[method]
    stretch = max(scale, 1.0) if antialias else 1.0
    distances = (np.arange(size) + 0.5 - centers[:, None]) / stretch
    matrix = np.where(np.abs(distances) <= radius, kernel(distances), 0.0)
    return _read_only(matrix / matrix.sum(1, keepdims=True))


def taps(matrix: Array) -> tuple[Array, Array]:
    """The pixels that each row of a matrix needs and their weights, both (new_size, most taps)."""
    most = int((matrix != 0.0).sum(1).max())
    order = np.argsort(matrix == 0.0, axis=1, kind="stable")[:, :most]
    return order.astype("int32"), np.take_along_axis(matrix, order, 1)


def _indicator(indices: Array, size: int) -> Array:
    matrix = np.zeros((len(indices), size))
    matrix[np.arange(len(indices)), indices] = 1.0
    return matrix


def _repeating_border(positions: Array, size: int, method: str) -> Array:
    reach = 1 if method == "bilinear" else 2
    floor = np.floor(positions)
    matrix = np.zeros((len(positions), size))
    for offset in range(1 - reach, reach + 1):
        at = floor + offset
        distance = positions - at
        share = _triangle(distance) if method == "bilinear" else _cubic(distance, -0.75)
        inside = np.clip(at, 0, size - 1).astype("int64")
        matrix[np.arange(len(positions)), inside] += share
    return matrix


def _read_only(matrix: Array) -> Array:
    matrix.flags.writeable = False
    return matrix


def crop_box(height: int, width: int, new_height: int, new_width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of the largest centered part with the new sizes' proportions."""
    crop_height = max(min(height, int(float(width * new_height) / new_width)), 1)
    crop_width = max(min(width, int(float(height * new_width) / new_height)), 1)
    top = int(float(height - crop_height) / 2)
    left = int(float(width - crop_width) / 2)
    return top, left, crop_height, crop_width


def pad_margins(height: int, width: int, new_height: int, new_width: int) -> tuple[int, int]:
    """Rows to add above and below, and columns left and right, for the new sizes' proportions."""
    pad_height = max(height, int(float(width * new_height) / new_width))
    pad_width = max(width, int(float(height * new_width) / new_height))
    return math.floor((pad_height - height) / 2), math.floor((pad_width - width) / 2)


def resize_array(
    image: Array,
    size: tuple[int, int],
    method: str,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
) -> Array:
    """One image (height, width, channels) as float32 of another size.

    The core computes images of uint8, without Python's lock; NumPy those of other dtypes, such as
    16-bit grayscale.
    """
    height, width = image.shape[:2]
    taps_of_axes = image_taps(
        height, width, size, method, crop_to_aspect_ratio, pad_to_aspect_ratio
    )
    if image.dtype == np.uint8:
        return _core.resample_image(image, *taps_of_axes).numpy()
    row_indices, row_shares, column_indices, column_shares = taps_of_axes
    down = _weighted(image.astype("float32"), 0, row_indices, row_shares)
    return _weighted(down, 1, column_indices, column_shares)


def image_taps(
    height: int,
    width: int,
    size: tuple[int, int],
    method: str,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """The taps that resize an image: indices and shares of rows, and those of columns."""
    whole_height, whole_width = height, width
    top, left = 0, 0
    if crop_to_aspect_ratio:
        top, left, height, width = crop_box(height, width, *size)
    elif pad_to_aspect_ratio:
        rows, columns = pad_margins(height, width, *size)
        top, left, height, width = -rows, -columns, height + 2 * rows, width + 2 * columns
    return (
        *_inside(*_axis_taps(height, size[0], method), top, whole_height),
        *_inside(*_axis_taps(width, size[1], method), left, whole_width),
    )


@functools.lru_cache(maxsize=512)
def _axis_taps(size: int, new_size: int, method: str) -> tuple[Array, Array]:
    """The taps of an axis, in float32; of an axis that keeps its size only where a method blurs."""
    if size == new_size and method not in ("gaussian", "mitchellcubic"):
        indices, shares = np.arange(size, dtype="int32")[:, None], np.ones((size, 1))
    else:
        # Not what `weights` keeps: matrices of photographs of many sizes are gigabytes.
        indices, shares = taps(weights.__wrapped__(size, new_size, method))
    return _read_only(indices), _read_only(shares.astype("float32"))


def _inside(indices: Array, shares: Array, first: int, size: int) -> tuple[Array, Array]:
    """The taps of a part of an axis that begins at `first`, on the axis of `size` pixels itself.

    Black pixels beside the image are none of it: what they add is nothing of some other pixel. A
    strip of 65,535 x 1 pixels would be a square of 4 gigabytes if they were there.
    """
    indices = indices + np.int32(first)
    if first >= 0:
        return indices, shares
    is_inside = (indices >= 0) & (indices < size)
    return indices.clip(0, size - 1), np.where(is_inside, shares, np.float32(0.0))


def _weighted(image: Array, axis: int, indices: Array, shares: Array) -> Array:
    shares = shares[(slice(None), slice(None), *[None] * (2 - axis))]
    parts = (image.take(indices[:, t], axis) * shares[:, t] for t in range(indices.shape[1]))
    return functools.reduce(np.add, parts)
