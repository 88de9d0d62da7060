"""Images of another size, in NumPy and float64."""

from __future__ import annotations

import numpy as np

from .reference import reference


def _cubic(x, a):
    x = np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(x, radius):
    return np.where(np.abs(x) < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


_WINDOWS = {
    "bilinear": lambda x: np.maximum(0.0, 1 - np.abs(x)),
    "bicubic": lambda x: _cubic(x, -0.5),
    "lanczos3": lambda x: _lanczos(x, 3),
    "lanczos5": lambda x: _lanczos(x, 5),
}


def _matrix(old, new, method, antialias):
    """The weights (new, old) of an axis."""
    if old == new:
        return np.eye(old)
    if method == "nearest":
        step = np.float32(old) / np.float32(new)
        at = np.floor((np.arange(new, dtype=np.float32) + np.float32(0.5)) * step).astype(int)
        return np.eye(old)[np.minimum(at, old - 1)]
    places = (np.arange(new) + 0.5) * old / new - 0.5
    window, stretch = _WINDOWS[method], max(old / new, 1.0) if antialias else 1.0
    # Pixels beyond the border are the border's where nothing else is said, and elsewhere nothing.
    repeats = method in ("bilinear", "bicubic") and not antialias
    if repeats and method == "bicubic":
        window = lambda x: _cubic(x, -0.75)  # noqa: E731
    beyond = 3 if repeats else 0
    pixels = np.arange(-beyond, old + beyond)
    wide = window((places[:, None] - pixels) / stretch)
    matrix = np.zeros((new, old))
    np.add.at(matrix.T, pixels.clip(0, old - 1), wide.T)
    return matrix / matrix.sum(axis=1, keepdims=True)


def _weighted(x, matrix, axis):
    """Only pixels with a weight count: infinity times 0 is none."""
    x = np.moveaxis(x, axis, 0)
    rows = [np.tensordot(row[row != 0], x[row != 0], 1) for row in matrix]
    return np.moveaxis(np.stack(rows), 0, axis)


@reference("resize2d")
def resize2d(x, size, method, antialias):
    for axis in (0, 1):
        x = _weighted(x, _matrix(x.shape[1 + axis], size[axis], method, antialias), 1 + axis)
    return x


@reference("resize2d_grad")
def resize2d_grad(gy, input_shape, size, method, antialias):
    for axis in (0, 1):
        matrix = _matrix(input_shape[1 + axis], size[axis], method, antialias)
        gy = _weighted(gy, matrix.T, 1 + axis)
    return gy
