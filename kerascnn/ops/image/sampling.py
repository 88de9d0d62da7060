"""Images read at other places: affine and perspective transforms, distortions, any coordinates."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise, joining, rounding, shaping
from kerascnn.ops.image import common, filters
from kerascnn.symbolic.operation import op

__all__ = [
    "AFFINE_INTERPOLATIONS",
    "FILL_MODES",
    "affine_transform",
    "elastic_transform",
    "map_coordinates",
    "perspective_transform",
]

FILL_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
AFFINE_INTERPOLATIONS = ("nearest", "bilinear")


@op
def affine_transform(
    images: Any,
    transform: Any,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Any:
    """Images whose pixel at (x, y) is the input's at (a0 x + a1 y + a2, b0 x + b1 y + b2).

    Args:
        images: (height, width, channels) or (n, height, width, channels), or with the channels
            first. Of any dtype; integers are rounded at the end.
        transform: (a0, a1, a2, b0, b1, b2, c0, c1), one for all images or one for each, (n, 8).
            c0 and c1, which would make it a perspective, are taken as 0.
        interpolation: "bilinear" or "nearest".
        fill_mode: What lies outside: "constant", the "nearest" pixel, the image again ("wrap"), or
            its mirror image, with the border repeated ("reflect") or not ("mirror").
        fill_value: For "constant".
        data_format: By default the configured one.

    Returns:
        Images of the same shape and dtype.

    Raises:
        ValueError: for another interpolation, fill mode, number of axes or shape of `transform`.

    Source: https://www.tensorflow.org/addons/api_docs/python/tfa/image/transform, whose order of
    the eight numbers this is.

    Example:

    >>> from kerascnn import ops
    >>> image = ops.reshape(ops.arange(3.0), (1, 3, 1))
    >>> ops.image.affine_transform(image, [1.0, 0, 1, 0, 1, 0, 0, 0]).numpy().ravel().tolist()
    [1.0, 2.0, 0.0]
    """
    common.check_choice("interpolation", interpolation, AFFINE_INTERPOLATIONS)
    common.check_choice("fill_mode", fill_mode, FILL_MODES)
    images = dispatch.convert(images)
    transform = dispatch.convert(transform, like=images)
    common.check_rank(images)
    if len(transform.shape) not in (1, 2) or transform.shape[-1] != 8:
        raise ValueError(
            "Invalid transform rank: expected rank 1 (single transform) or rank 2 (batch of "
            "transforms), of 8 numbers each. Received input with shape: "
            f"transform.shape={tuple(transform.shape)}"
        )
    if transform.dtype not in ("float32", "float64"):
        transform = dispatch.convert(transform, "float32")
    if len(transform.shape) == 1:
        transform = shaping.expand_dims(transform, 0)
    batch = common.as_batch(images, data_format)
    if transform.shape[0] not in (1, batch.shape[0]):
        raise ValueError(
            f"affine_transform: {transform.shape[0]} transforms for {batch.shape[0]} images."
        )
    parts = joining.split(transform, 8, axis=1)[:6]
    return affine_pixels(images, parts, interpolation, fill_mode, fill_value, data_format)


def affine_pixels(
    images: Any,
    parts: Sequence[Any],
    interpolation: str,
    fill_mode: str,
    fill_value: float,
    data_format: str | None,
) -> Any:
    """As `affine_transform`, of the six numbers a0 to b2 one by one.

    Each is (n, 1), (1, 1), or a number. What does not depend on a row or on a column, because a
    number is 0, is computed once for all rows or columns.
    """
    batch = common.as_batch(images, data_format)
    dtype = next((part.dtype for part in parts if hasattr(part, "dtype")), "float32")
    parts = [shaping.reshape(p, (-1, 1, 1, 1)) if hasattr(p, "shape") else p for p in parts]
    y, x = _grid(batch, dtype)
    positions = [_plane(parts[3:], y, x), _plane(parts[:3], y, x)]
    result = _sampled_images(batch, positions, interpolation, fill_mode, fill_value)
    return common.from_batch(result, images, data_format)


def _grid(images: Any, dtype: str) -> tuple[Any, Any]:
    """Returns the rows and columns of images (n, height, width, channels), ready to broadcast."""
    height, width = images.shape[1:3]
    kind = dtypes.numpy_dtype(dtype)
    y = dispatch.convert(np.arange(height, dtype=kind).reshape(1, height, 1, 1), like=images)
    x = dispatch.convert(np.arange(width, dtype=kind).reshape(1, 1, width, 1), like=images)
    return y, x


def _plane(parts: Sequence[Any], y: Any, x: Any) -> Any:
    """Computes parts[0] x + parts[1] y + parts[2]."""
    by_x, by_y, shift = parts
    products = [
        places if _is_number(by, 1) else elementwise.multiply(places, by)
        for places, by in ((y, by_y), (x, by_x))
        if not _is_number(by, 0)
    ]
    return elementwise.add(functools.reduce(elementwise.add, products), shift)


def _is_number(part: Any, value: float) -> bool:
    return not hasattr(part, "shape") and part == value


@op
def perspective_transform(
    images: Any,
    start_points: Any,
    end_points: Any,
    interpolation: str = "bilinear",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Any:
    """Images seen in another perspective: four points go to four others.

    Three points on one line have no such transform; the result is then not defined.

    Args:
        images: (height, width, channels) or (n, height, width, channels), or with the channels
            first. Of any dtype; integers are rounded at the end.
        start_points: Where the four points are in `images`, (4, 2) or (n, 4, 2), each (x, y).
        end_points: Where they are in the result, of the same shape.
        interpolation: "bilinear" or "nearest".
        fill_value: What lies outside of the images.
        data_format: By default the configured one.

    Returns:
        Images of the same shape and dtype.

    Raises:
        ValueError: for another interpolation, number of axes or shape of points.

    Source: Heckbert, "Fundamentals of Texture Mapping and Image Warping", 1989, section 2.2.3.

    Example:

    >>> from kerascnn import ops
    >>> image = ops.reshape(ops.arange(4.0), (2, 2, 1))
    >>> corners = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> turned = [[1, 0], [0, 0], [1, 1], [0, 1]]
    >>> ops.image.perspective_transform(image, corners, turned).numpy().ravel().tolist()
    [2.0, 0.0, 3.0, 1.0]
    """
    common.check_choice("interpolation", interpolation, AFFINE_INTERPOLATIONS)
    images = dispatch.convert(images)
    common.check_rank(images)
    start_points = _points(start_points, "start_points", images)
    end_points = _points(end_points, "end_points", images)
    if start_points.shape != end_points.shape:
        raise ValueError(
            "start_points and end_points must have the same shape. Received "
            f"start_points.shape={tuple(start_points.shape)}, "
            f"end_points.shape={tuple(end_points.shape)}"
        )
    batch = common.as_batch(images, data_format)
    matrix = homography(start_points, end_points)
    if matrix.shape[0] not in (1, batch.shape[0]):
        raise ValueError(
            f"perspective_transform: {matrix.shape[0]} times four points for {batch.shape[0]} "
            "images."
        )
    dtype = "float64" if images.dtype == "float64" else "float32"
    matrix = dispatch.convert(matrix, dtype)
    rows = [[shaping.reshape(matrix[:, i, j], (-1, 1, 1, 1)) for j in range(3)] for i in range(3)]
    y, x = _grid(batch, dtype)
    depth = _plane(rows[2], y, x)
    positions = [elementwise.divide(_plane(rows[i], y, x), depth) for i in (1, 0)]
    result = _sampled_images(batch, positions, interpolation, "constant", fill_value)
    return common.from_batch(result, images, data_format)


def _points(points: Any, name: str, images: Any) -> Any:
    """Returns four points for each image, (n or 1, 4, 2) float64: their products cancel."""
    points = dispatch.convert(points, "float64", like=images)
    if len(points.shape) not in (2, 3) or tuple(points.shape[-2:]) != (4, 2):
        raise ValueError(
            f"Invalid {name} shape: expected (4,2) for a single image or (N,4,2) for a batch. "
            f"Received shape: {tuple(points.shape)}"
        )
    return points if len(points.shape) == 3 else shaping.expand_dims(points, 0)


def homography(start: Any, end: Any) -> Any:
    """The matrices (n, 3, 3), with 1 in their corner, that bring points `end` to `start`.

    Points are (n, 4, 2).

    In homogeneous coordinates, columns p1, p2, p3 scaled by the shares that p4 has of them bring
    the unit vectors to three points and (1, 1, 1) to the fourth; one such matrix after the inverse
    of another is the transform. Adjugates stand for inverses, as only the ratios count.
    """
    start, end = (dispatch.convert(points, "float64") for points in (start, end))
    columns, _, shares = _frame(start)
    _, back, others = _frame(end)
    # These are the reciprocals of the other shares, times all three shares.
    first, second, third = (others[:, i : i + 1] for i in range(3))
    pairs = [
        elementwise.multiply(a, b) for a, b in ((second, third), (first, third), (first, second))
    ]
    scale = elementwise.multiply(shares, joining.concatenate(pairs, 1))
    scaled = elementwise.multiply(scale[:, :, None], back)
    matrix = _product(columns, scaled)
    return elementwise.divide(matrix, matrix[:, 2:, 2:])


def _frame(points: Any) -> tuple[Any, Any, Any]:
    """Returns three points as columns (n, 3, 3), its adjugate, and that times the fourth point."""
    one = np.ones((points.shape[0], 4, 1))
    full = joining.concatenate([points, dispatch.convert(one, "float64", like=points)], -1)
    p1, p2, p3, p4 = (full[:, i] for i in range(4))
    crosses = [_cross(p2, p3), _cross(p3, p1), _cross(p1, p2)]
    adjugate = joining.stack(crosses, 1)
    shares = _product(adjugate, p4[:, :, None])
    return joining.stack([p1, p2, p3], 2), adjugate, shares[:, :, 0]


def _cross(a: Any, b: Any) -> Any:
    """Returns the cross product of vectors (n, 3)."""
    parts = []
    for i, j in ((1, 2), (2, 0), (0, 1)):
        parts.append(a[:, i : i + 1] * b[:, j : j + 1] - a[:, j : j + 1] * b[:, i : i + 1])
    return joining.concatenate(parts, 1)


def _product(a: Any, b: Any) -> Any:
    """Multiplies matrices (n, 3, 3) and (n, 3, k), which are too small for a library."""
    terms = [elementwise.multiply(a[:, :, i : i + 1], b[:, i : i + 1, :]) for i in range(3)]
    return functools.reduce(elementwise.add, terms)


@op
def elastic_transform(
    images: Any,
    alpha: Any = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    seed: Any = None,
    data_format: str | None = None,
) -> Any:
    """Images whose pixels are moved at random, neighbours in similar directions.

    The pixel at (x, y) is the input's at (x + alpha u, y + alpha v), u and v being noise of
    standard deviation `sigma` that `gaussian_blur` with this `sigma` and a window of 6 sigma
    smooths.

    Args:
        images: (height, width, channels) or (n, height, width, channels), or with the channels
            first. Of any dtype; integers are rounded at the end.
        alpha: How far the pixels move.
        sigma: Over how many pixels the motion is smoothed, a number that is known.
        interpolation: "bilinear" or "nearest".
        fill_mode: What lies outside, as in `affine_transform`.
        fill_value: For "constant".
        seed: An integer, a `random.SeedGenerator`, or None.
        data_format: By default the configured one.

    Returns:
        Images of the same shape and dtype.

    Raises:
        ValueError: for another interpolation, fill mode, number of axes or seed.

    Source: Simard, Steinkraus and Platt, "Best Practices for Convolutional Neural Networks Applied
    to Visual Document Analysis", 2003.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.elastic_transform(ops.ones((2, 12, 9, 3)), seed=1).shape
    (2, 12, 9, 3)
    """
    # `random` imports `ops`.
    from kerascnn import random

    common.check_choice("interpolation", interpolation, AFFINE_INTERPOLATIONS)
    common.check_choice("fill_mode", fill_mode, FILL_MODES)
    images = dispatch.convert(images)
    common.check_rank(images)
    batch = common.as_batch(images, data_format)
    dtype = "float64" if images.dtype == "float64" else "float32"
    width = int(6 * sigma) | 1
    noise = random.normal((*batch.shape[:3], 2), 0.0, float(sigma), dtype, seed)
    noise = dispatch.convert(noise, device_name=getattr(batch, "device", None))
    noise = filters.gaussian_blur(noise, (width, width), (sigma, sigma), "channels_last")
    moves = elementwise.multiply(noise, dispatch.convert(alpha, dtype, like=batch))
    return moved_pixels(images, moves, interpolation, fill_mode, fill_value, data_format)


def moved_pixels(
    images: Any,
    moves: Any,
    interpolation: str,
    fill_mode: str,
    fill_value: float,
    data_format: str | None,
) -> Any:
    """Reads images at (x, y) + moves, (n, height, width, 2), for each pixel (x, y)."""
    batch = common.as_batch(images, data_format)
    y, x = _grid(batch, moves.dtype)
    positions = [elementwise.add(y, moves[..., 1:]), elementwise.add(x, moves[..., :1])]
    result = _sampled_images(batch, positions, interpolation, fill_mode, fill_value)
    return common.from_batch(result, images, data_format)


@op
def map_coordinates(
    inputs: Any,
    coordinates: Any,
    order: int,
    fill_mode: str = "constant",
    fill_value: float = 0,
) -> Any:
    """The elements of an array at any places, also between its elements.

    Args:
        inputs: An array of any number of axes; integers are rounded at the end.
        coordinates: For each axis of `inputs` the places along it, all of one shape (or shapes that
            broadcast): a list of tensors, or a tensor of one more axis.
        order: 0 for the nearest element, 1 for linear interpolation.
        fill_mode: What lies outside, as in `affine_transform`.
        fill_value: For "constant".

    Returns:
        A tensor of the shape of the places and the dtype of `inputs`.

    Raises:
        ValueError: for coordinates that don't fit the axes, or another fill mode.
        NotImplementedError: for a higher order.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.map_coordinates([0.0, 10.0, 20.0], [[0.5, 2.0, 3.0]], order=1).numpy().tolist()
    [5.0, 20.0, 0.0]
    """
    inputs = dispatch.convert(inputs)
    sizes = tuple(inputs.shape)
    places = _places(coordinates, inputs)
    if len(places) != len(sizes):
        raise ValueError(
            "First dim of `coordinates` must be the same as the rank of `inputs`. Received inputs "
            f"with shape: {sizes} and coordinate leading dim of {len(places)}"
        )
    if any(not p.shape for p in places):
        raise ValueError(
            "Invalid coordinates rank: expected at least rank 2, or tensors of at least one axis "
            f"for each axis of the inputs. Received shapes: {[tuple(p.shape) for p in places]}"
        )
    common.check_choice("fill_mode", fill_mode, FILL_MODES)
    if order not in (0, 1):
        raise NotImplementedError(
            f"map_coordinates: order must be 0 (nearest) or 1 (linear). Received: order={order}"
        )
    flat = shaping.reshape(inputs, -1)
    return _sampled(flat, sizes, places, None, AFFINE_INTERPOLATIONS[order], fill_mode, fill_value)


def _places(coordinates: Any, inputs: Any) -> list[Any]:
    """Returns floating coordinates for each axis."""
    if not isinstance(coordinates, (list, tuple)):
        coordinates = dispatch.convert(coordinates, like=inputs)
        coordinates = [coordinates[i] for i in range(coordinates.shape[0])]
    places = [dispatch.convert(c, like=inputs) for c in coordinates]
    # 16 bits cannot represent positions between the pixels of ordinary images.
    return [
        p if p.dtype in ("float32", "float64") else dispatch.convert(p, "float32") for p in places
    ]


def _sampled_images(
    images: Any, positions: Sequence[Any], interpolation: str, fill_mode: str, fill_value: float
) -> Any:
    """The pixels of images (n, height, width, channels) at positions (y, x).

    Positions are (n, height, width, 1), or broadcast to it: with an axis for the channels from the
    start on, all that is computed of them fits the pixels.
    """
    batch, height, width, channels = images.shape
    flat = shaping.reshape(images, (batch * height * width, channels))
    first = np.arange(batch, dtype="int32").reshape(batch, 1, 1, 1) * (height * width)
    first = dispatch.convert(first, like=images)
    return _sampled(flat, (height, width), positions, first, interpolation, fill_mode, fill_value)


def _sampled(
    flat: Any,
    sizes: Sequence[int],
    positions: Sequence[Any],
    first: Any,
    interpolation: str,
    fill_mode: str,
    fill_value: float,
) -> Any:
    """Returns what an array of some sizes has at positions along its axes.

    Args:
        flat: The array with these axes made one, (elements,) or (elements, channels).
        sizes: The axes' sizes.
        positions: Floating positions along each axis, with one more axis, of size 1, where `flat`
            has channels.
        first: Where the array begins in `flat`, of integers that broadcast to the positions; None
            for 0.
        interpolation: "nearest" or "bilinear".
        fill_mode: One of `FILL_MODES`.
        fill_value: For "constant".
    """
    dtype = flat.dtype
    # An unchanged pixel needs no wider type.
    is_plain = interpolation == "nearest" or dtype in ("float32", "float64")
    wide = dtype if is_plain else "float32"
    if dtypes.is_integer(dtype):
        fill_value = int(fill_value)
    parts = []
    neighbors = [
        _neighbors(position, size, interpolation, fill_mode)
        for position, size in zip(positions, sizes, strict=True)
    ]
    for corner in itertools.product(*neighbors):
        indices, insides, shares = zip(*corner, strict=True)
        place = indices[0]
        for index, size in zip(indices[1:], sizes[1:], strict=True):
            place = elementwise.add(elementwise.multiply(place, size), index)
        if first is not None:
            place = elementwise.add(place, first)
        pixel = dispatch.apply_one("gather", [flat, place], {"axis": 0})
        if len(flat.shape) == 2:
            pixel = shaping.reshape(pixel, (*place.shape[:-1], flat.shape[1]))
        pixel = dispatch.convert(pixel, wide)
        if insides[0] is not None:
            inside = functools.reduce(elementwise.logical_and, insides)
            pixel = elementwise.where(inside, pixel, dispatch.convert(fill_value, wide, like=flat))
        if shares[0] is not None:
            share = dispatch.convert(functools.reduce(elementwise.multiply, shares), wide)
            pixel = elementwise.multiply(pixel, share)
        parts.append(pixel)
    result = functools.reduce(elementwise.add, parts)
    return result if wide == dtype else common.rounded(result, dtype)


def _neighbors(
    position: Any, size: int, interpolation: str, fill_mode: str
) -> list[tuple[Any, Any, Any]]:
    """Returns index, whether it is inside, and weight of each pixel that a position needs."""
    if interpolation == "nearest":
        places = [(rounding.round(position), None)]
    else:
        lower = rounding.floor(position)
        upper_share = elementwise.subtract(position, lower)
        lower_share = elementwise.subtract(1.0, upper_share)
        places = [(lower, lower_share), (elementwise.add(lower, 1.0), upper_share)]
    found = []
    for at, share in places:
        inside = None
        if fill_mode == "constant":
            inside = elementwise.logical_and(
                elementwise.greater_equal(at, 0.0), elementwise.less(at, float(size))
            )
        # Floating-point integers are exact far beyond any image's size.
        index = dispatch.convert(_inside(at, size, fill_mode), "int32")
        found.append((index, inside, share))
    return found


def _inside(at: Any, size: int, fill_mode: str) -> Any:
    """Returns the pixel that stands for one outside the image."""
    if fill_mode == "wrap":
        at = elementwise.mod(at, float(size))
    elif fill_mode == "mirror":
        at = _mirrored(at, size - 1)
    elif fill_mode == "reflect":
        # The position is mirrored at the edges between pixels. It is in half pixels, so that it
        # stays an integer.
        twice = elementwise.add(elementwise.multiply(at, 2.0), 1.0)
        halves = elementwise.subtract(_mirrored(twice, 2 * size), 1.0)
        at = rounding.floor(elementwise.multiply(halves, 0.5))
    return elementwise.clip(at, 0.0, float(size - 1))


def _mirrored(at: Any, period: int) -> Any:
    """Returns the triangular wave that is x from 0 to `period`, and falls after it."""
    if period == 0:
        return elementwise.multiply(at, 0.0)
    around = elementwise.mod(elementwise.add(at, float(period)), 2.0 * period)
    return elementwise.absolute(elementwise.subtract(around, float(period)))
