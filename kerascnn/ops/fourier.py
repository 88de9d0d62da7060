"""Fourier transforms of pairs of real tensors: real and imaginary part.

They are ops of the core, which pocketfft computes on a CPU and cuFFT on a GPU; so they join
compiled steps, and their gradients are transforms in the other direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise, indexing, shaping
from kerascnn.ops.signals import extract_sequences
from kerascnn.symbolic.operation import op

__all__ = ["fft", "fft2", "ifft2", "irfft", "istft", "rfft", "stft"]

Pair = tuple[Any, Any]
Array = np.ndarray[Any, Any]


@op
def fft(x: Pair) -> Pair:
    """The discrete Fourier transform along the last axis.

    Args:
        x: Real and imaginary part, floating tensors of one shape.

    Returns:
        Real and imaginary part in the shape and dtype of x.

    Raises:
        ValueError: for something else than two floating tensors of one shape.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.fft.fft.html

    Example:

    >>> from kerascnn import ops
    >>> real, imaginary = ops.fft(([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]))
    >>> real.numpy().tolist(), imaginary.numpy().tolist()
    ([1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0])
    """
    return _transform(*_pair("fft", x), inverse=False)


@op
def fft2(x: Pair) -> Pair:
    """The discrete Fourier transform along the last two axes.

    Args:
        x: Real and imaginary part, floating tensors of one shape with at least two axes. Of two
            dtypes, both take the one that they promote to.

    Returns:
        Real and imaginary part in the shape and dtype of x.

    Raises:
        ValueError: for something else than two floating tensors of one such shape.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.fft.fft2.html

    Example:

    >>> from kerascnn import ops
    >>> real, imaginary = ops.fft2((ops.ones((2, 2)), ops.zeros((2, 2))))
    >>> real.numpy().tolist(), imaginary.numpy().tolist()
    ([[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]])
    """
    return _over_two_axes(_pair("fft2", x, axes=2), inverse=False)


@op
def ifft2(x: Pair) -> Pair:
    """The inverse of `fft2`, divided by the number of elements along the two axes.

    Args:
        x: Real and imaginary part, floating tensors of one shape with at least two axes.

    Returns:
        Real and imaginary part in the shape and dtype of x.

    Raises:
        ValueError: for something else than two floating tensors of one such shape.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.fft.ifft2.html

    Example:

    >>> from kerascnn import ops
    >>> x = ops.convert_to_tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> real, imaginary = ops.ifft2(ops.fft2((x, ops.zeros((2, 2)))))
    >>> real.numpy().tolist(), imaginary.numpy().tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]])
    """
    return _over_two_axes(_pair("ifft2", x, axes=2), inverse=True)


@op
def rfft(x: Any, fft_length: int | None = None) -> Pair:
    """The first half of the discrete Fourier transform of real numbers, along the last axis.

    Args:
        x: A floating tensor of at least one axis.
        fft_length: To what length the axis is cut, or filled up with 0; by default its own.

    Returns:
        Real and imaginary part in the dtype of x, with fft_length // 2 + 1 elements along the last
        axis; the others are their conjugates.

    Raises:
        ValueError: for integers, a number without axes, or a length below 1.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.fft.rfft.html

    Example:

    >>> from kerascnn import ops
    >>> real, imaginary = ops.rfft([1.0, 2.0, 3.0, 4.0])
    >>> real.numpy().round(3).tolist(), (imaginary.numpy().round(3) + 0.0).tolist()  # no -0.0
    ([10.0, -2.0, -2.0], [0.0, 2.0, 0.0])
    """
    x = _floating("rfft", x)
    length = _length("rfft", fft_length, x.shape[-1])
    attributes = {"scale": 1.0, "middle": 1.0}
    real, imaginary = dispatch.apply("rfft", [_of_length(x, length)], attributes)
    return real, imaginary


@op
def irfft(x: Pair, fft_length: int | None = None) -> Any:
    """The inverse of `rfft`.

    Args:
        x: Real and imaginary part of the first half of a transform, floating tensors of one shape.
        fft_length: Length of the result; by default 2 * (n - 1), n being that of x.

    Returns:
        A real tensor in the dtype of x.

    Raises:
        ValueError: for something else than two floating tensors of one shape, or a length below 1.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.fft.irfft.html

    Example:

    >>> from kerascnn import ops
    >>> ops.irfft(ops.rfft([1.0, 2.0, 3.0, 4.0])).numpy().tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    real, imaginary = _pair("irfft", x)
    length = _length("irfft", fft_length, 2 * (real.shape[-1] - 1))
    parts = [_of_length(part, length // 2 + 1) for part in (real, imaginary)]
    attributes = {"length": length, "scale": 1 / length, "middle": 1.0}
    return dispatch.apply_one("irfft", parts, attributes)


@op
def stft(
    x: Any,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    window: Any = "hann",
    center: bool = True,
) -> Pair:
    """The transforms of short pieces of a signal, along the last axis.

    Args:
        x: float32 or float64 (..., samples).
        sequence_length: Samples of a piece.
        sequence_stride: Samples from one piece to the next.
        fft_length: To what length a piece is filled up with 0.
        window: "hann", "hamming", a vector of `sequence_length`, or None for ones.
        center: Whether the signal is extended by its mirror image, so that a piece has its sample
            in the middle.

    Returns:
        Real and imaginary part (..., pieces, fft_length // 2 + 1) in the dtype of x.

    Raises:
        TypeError: for other dtypes.
        ValueError: for lengths that don't fit, and other windows.

    Source: https://docs.scipy.org/doc/scipy/reference/generated/scipy.signal.stft.html, without its
    scaling of the windows.

    Example:

    >>> from kerascnn import ops
    >>> ops.stft([0.0, 1.0, 2.0, 3.0, 4.0], 3, 2, 3)[0].shape
    (3, 2)
    """
    _check_pieces("stft", sequence_length, sequence_stride, fft_length)
    x = dispatch.convert(x)
    if x.dtype not in ("float32", "float64"):
        raise TypeError(f"stft: the signal must be float32 or float64. Received: dtype={x.dtype}")
    values = _window("stft", window, sequence_length, fft_length, x.dtype)
    if center:
        x = shaping.pad(x, _last_axis(x, fft_length // 2, fft_length // 2), "reflect")
    pieces = extract_sequences(x, fft_length, sequence_stride)
    return rfft(elementwise.multiply(pieces, values))


@op
def istft(
    x: Pair,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    length: int | None = None,
    window: Any = "hann",
    center: bool = True,
) -> Any:
    """The signal whose `stft` comes closest to x.

    Args:
        x: Real and imaginary part (..., pieces, fft_length // 2 + 1), floating.
        sequence_length: As for `stft`.
        sequence_stride: As for `stft`.
        fft_length: As for `stft`.
        length: Samples of the result; by default all that the pieces have.
        window: As for `stft`.
        center: As for `stft`.

    Returns:
        A real tensor (..., samples) in the dtype of x.

    Raises:
        ValueError: for something else than two floating tensors of one shape, lengths that don't
            fit, and other windows.

    Source: Griffin and Lim, "Signal Estimation from Modified Short-Time Fourier Transform", 1984.

    Example:

    >>> from kerascnn import ops
    >>> x = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    >>> back = ops.istft(ops.stft(x, 4, 2, 4), 4, 2, 4)
    >>> back.numpy().round(3).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    _check_pieces("istft", sequence_length, sequence_stride, fft_length)
    real, imaginary = _pair("istft", x, axes=2)
    values = _window("istft", window, sequence_length, fft_length, real.dtype)
    pieces = elementwise.multiply(irfft((real, imaginary), fft_length), values)
    summed = _overlapped(pieces, sequence_stride)
    count = real.shape[-2]
    samples = fft_length + sequence_stride * (count - 1)
    weights = np.zeros(samples)
    for start in range(0, sequence_stride * count, sequence_stride):
        weights[start : start + fft_length] += values.astype("float64") ** 2
    # Where no window reaches there is nothing to divide.
    weights = np.where(weights > 1e-10, weights, 1.0).astype(values.dtype)
    signal = elementwise.divide(summed, weights)
    start = fft_length // 2 if center else 0
    end = samples - fft_length // 2 if center else samples
    if length is not None:
        end = start + length
    return indexing.get_item(signal, (..., slice(start, end)))


def _transform(real: Any, imaginary: Any, inverse: bool) -> Pair:
    """Computes the transform along the last axis, or the inverse one with its factor."""
    scale = 1 / max(real.shape[-1], 1) if inverse else 1.0
    attributes = {"inverse": inverse, "scale": scale}
    real, imaginary = dispatch.apply("fft", [real, imaginary], attributes)
    return real, imaginary


def _over_two_axes(pair: Pair, inverse: bool) -> Pair:
    real, imaginary = _transform(*pair, inverse)
    real, imaginary = shaping.swapaxes(real, -1, -2), shaping.swapaxes(imaginary, -1, -2)
    real, imaginary = _transform(real, imaginary, inverse)
    return shaping.swapaxes(real, -1, -2), shaping.swapaxes(imaginary, -1, -2)


def _overlapped(pieces: Any, stride: int) -> Any:
    """Adds pieces (..., count, length), each `stride` samples behind the one before."""
    *leading, count, length = pieces.shape
    blocks = -(-length // stride)
    pieces = shaping.reshape(_of_length(pieces, blocks * stride), (*leading, count, blocks, stride))
    total: Any = None
    for block in range(blocks):
        part = indexing.get_item(pieces, (..., block, slice(None)))
        widths = [(0, 0)] * len(leading) + [(block, blocks - 1 - block), (0, 0)]
        part = shaping.pad(part, widths)
        total = part if total is None else elementwise.add(total, part)
    total = shaping.reshape(total, (*leading, (count + blocks - 1) * stride))
    return _first(total, length + stride * (count - 1))


def _pair(name: str, x: Any, axes: int = 1) -> Pair:
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ValueError(
            f"{name}: the input must be a tuple of two tensors, real and imaginary. Received: {x!r}"
        )
    real, imaginary = (_floating(name, part) for part in x)
    if real.shape != imaginary.shape or len(real.shape) < axes:
        raise ValueError(
            f"{name}: real and imaginary part must have one shape, of {axes} axes or more. "
            f"Received: {tuple(real.shape)} and {tuple(imaginary.shape)}"
        )
    dtype = dtypes.result_type(real.dtype, imaginary.dtype)
    return dispatch.convert(real, dtype), dispatch.convert(imaginary, dtype)


def _floating(name: str, x: Any) -> Any:
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        raise ValueError(f"{name}: the input must be floating. Received: dtype={x.dtype}")
    if not x.shape:
        raise ValueError(f"{name}: the input must have an axis. Received: shape=()")
    return x


def _length(name: str, length: int | None, own: int) -> int:
    length = own if length is None else length
    if length < 1:
        raise ValueError(f"{name}: a transform has a positive length. Received: {length}")
    return int(length)


def _of_length(x: Any, length: int) -> Any:
    """Cuts the last axis, or pads it with 0."""
    own = x.shape[-1]
    if own >= length:
        return _first(x, length)
    return shaping.pad(x, _last_axis(x, 0, length - own))


def _first(x: Any, length: int) -> Any:
    return x if x.shape[-1] == length else indexing.get_item(x, (..., slice(0, length)))


def _last_axis(x: Any, before: int, after: int) -> list[tuple[int, int]]:
    return [(0, 0)] * (len(x.shape) - 1) + [(before, after)]


def _check_pieces(name: str, sequence_length: int, sequence_stride: int, fft_length: int) -> None:
    if not isinstance(sequence_stride, int) or sequence_stride <= 0:
        raise ValueError(
            f"{name}: `sequence_stride` must be a positive integer. Received: "
            f"sequence_stride={sequence_stride}"
        )
    if fft_length < sequence_length:
        raise ValueError(
            f"{name}: `fft_length` must be `sequence_length` or more. Received: "
            f"sequence_length={sequence_length}, fft_length={fft_length}"
        )


def _window(name: str, window: Any, sequence_length: int, fft_length: int, dtype: str) -> Array:
    """Returns the window with zeros on both sides."""
    if isinstance(window, str):
        if window not in ("hann", "hamming"):
            raise ValueError(
                f'{name}: a window is "hann", "hamming", a vector or None. Received: {window!r}'
            )
        # Spectra need a periodic window: one with an additional sample, without the last.
        make = np.hanning if window == "hann" else np.hamming
        values = make(sequence_length + 1)[:-1]
    elif window is None:
        values = np.ones(sequence_length)
    else:
        values = np.asarray(window)
    if values.shape != (sequence_length,):
        raise ValueError(
            f"{name}: the window must have the shape ({sequence_length},). Received: {values.shape}"
        )
    left = (fft_length - sequence_length) // 2
    widths: Sequence[int] = (left, fft_length - sequence_length - left)
    return np.pad(values, widths).astype(dtype)
