"""Fourier transforms of pairs of real tensors, as products with small matrices.

A transform of length a * b is one of length a, a factor for each element, and one of length b
(J. W. Cooley, J. W. Tukey, 1965); one of up to 64 elements is a product with a matrix. So all of it
runs on every device, joins compiled steps, and has gradients. Prime lengths above 64 are taken as a
convolution, by transforms whose length is a power of two (L. I. Bluestein, 1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, dtypes, tracing
from kerascnn.ops import creation, dispatch, elementwise, indexing, matrix_products, shaping
from kerascnn.ops.signals import extract_sequences
from kerascnn.symbolic.operation import op

__all__ = ["fft", "fft2", "ifft2", "irfft", "istft", "rfft", "stft"]

Pair = tuple[Any, Any]
Array = np.ndarray[Any, Any]

# Up to here a product with a whole matrix is taken.
_MOST_DIRECT = 64


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
    return _transform(*_pair("fft", x), -1)


@op
def fft2(x: Pair) -> Pair:
    """The discrete Fourier transform along the last two axes; see `fft`."""
    return _over_two_axes(_pair("fft2", x, axes=2), -1)


@op
def ifft2(x: Pair) -> Pair:
    """The inverse of `fft2`."""
    return _over_two_axes(_pair("ifft2", x, axes=2), 1)


@op
def rfft(x: Any, fft_length: int | None = None) -> Pair:
    """The first half of the discrete Fourier transform of real numbers, along the last axis.

    Args:
        x: A floating tensor.
        fft_length: To what length the axis is cut, or filled up with 0; by default its own.

    Returns:
        Real and imaginary part, with fft_length // 2 + 1 elements along the last axis; the others
        are their conjugates.

    Example:

    >>> from kerascnn import ops
    >>> real, imaginary = ops.rfft([1.0, 2.0, 3.0, 4.0])
    >>> real.numpy().round(3).tolist(), (imaginary.numpy().round(3) + 0.0).tolist()  # no -0.0
    ([10.0, -2.0, -2.0], [0.0, 2.0, 0.0])
    """
    x = _floating("rfft", x)
    length = _length("rfft", fft_length, x.shape[-1])
    x = _of_length(x, length)
    real, imaginary = _transform(x, creation.zeros_like(x), -1)
    return _first(real, length // 2 + 1), _first(imaginary, length // 2 + 1)


@op
def irfft(x: Pair, fft_length: int | None = None) -> Any:
    """The inverse of `rfft`.

    Args:
        x: Real and imaginary part of the first half of a transform.
        fft_length: Length of the result; by default 2 * (n - 1), n being that of x.

    Returns:
        A real tensor.

    Example:

    >>> from kerascnn import ops
    >>> ops.irfft(ops.rfft([1.0, 2.0, 3.0, 4.0])).numpy().tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    real, imaginary = _pair("irfft", x)
    length = _length("irfft", fft_length, 2 * (real.shape[-1] - 1))
    half = length // 2 + 1
    real, imaginary = _of_length(real, half), _of_length(imaginary, half)
    # What is no transform of real numbers counts as if it were one.
    places = np.arange(half)
    is_own = (places == 0) | (2 * places == length)
    imaginary = elementwise.where(is_own, creation.zeros_like(imaginary), imaginary)
    rest = slice(length - half, 0, -1)
    real = shaping.concatenate([real, real[..., rest]], -1)
    imaginary = shaping.concatenate([imaginary, elementwise.negative(imaginary[..., rest])], -1)
    return _transform(real, imaginary, 1)[0]


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
        Real and imaginary part (..., pieces, fft_length // 2 + 1).

    Raises:
        TypeError: for other dtypes.
        ValueError: for lengths that don't fit, and other windows.

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
        x: Real and imaginary part (..., pieces, fft_length // 2 + 1).
        sequence_length: As for `stft`.
        sequence_stride: As for `stft`.
        fft_length: As for `stft`.
        length: Samples of the result; by default all that the pieces have.
        window: As for `stft`.
        center: As for `stft`.

    Returns:
        A real tensor (..., samples).

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
    # Where no window reaches, there is nothing to divide.
    weights = np.where(weights > 1e-10, weights, 1.0).astype(values.dtype)
    signal = elementwise.divide(summed, weights)
    start = fft_length // 2 if center else 0
    end = samples - fft_length // 2 if center else samples
    if length is not None:
        end = start + length
    return indexing.get_item(signal, (..., slice(start, end)))


def _transform(real: Any, imaginary: Any, sign: int) -> Pair:
    """The transform along the last axis, for a positive sign with its factor the inverse one."""
    length = real.shape[-1]
    if sign > 0 and length > 0:
        real, imaginary = (elementwise.multiply(v, 1.0 / length) for v in (real, imaginary))
    dtype = real.dtype
    if dtype in ("float16", "bfloat16"):
        real, imaginary = dispatch.convert(real, "float32"), dispatch.convert(imaginary, "float32")
    real, imaginary = _recursive(real, imaginary, sign)
    return dispatch.convert(real, dtype), dispatch.convert(imaginary, dtype)


def _recursive(real: Any, imaginary: Any, sign: int) -> Pair:
    length = real.shape[-1]
    if length <= _MOST_DIRECT:
        return _direct(real, imaginary, sign)
    first = max((a for a in range(2, _MOST_DIRECT + 1) if length % a == 0), default=1)
    if first == 1:
        return _as_convolution(real, imaginary, sign)
    second = length // first
    leading = tuple(real.shape[:-1])

    def turned(v: Any) -> Any:
        return shaping.swapaxes(v, -1, -2)

    def in_rows(v: Any) -> Any:
        return turned(shaping.reshape(v, (*leading, first, second)))

    # Element j1 * second + j2: the transform along j1 ...
    real, imaginary = _direct(in_rows(real), in_rows(imaginary), sign)
    # ... a factor for each j2 and k1 ...
    angles = np.outer(np.arange(second), np.arange(first)) % length * (sign * 2 * np.pi / length)
    real, imaginary = _product(real, imaginary, angles)
    # ... and the transform along j2 gives element k1 + first * k2.
    real, imaginary = _recursive(turned(real), turned(imaginary), sign)
    whole = (*leading, length)
    return shaping.reshape(turned(real), whole), shaping.reshape(turned(imaginary), whole)


def _direct(real: Any, imaginary: Any, sign: int) -> Pair:
    length = real.shape[-1]
    # Angles beyond one turn would lose digits.
    turns = np.outer(np.arange(length), np.arange(length)) % max(length, 1)
    angles = turns * (sign * 2 * np.pi / max(length, 1))
    cosines, sines = np.cos(angles), np.sin(angles)
    matrix = np.block([[cosines, sines], [-sines, cosines]])
    both, dtype = shaping.concatenate([real, imaginary], -1), real.dtype
    if _rounds_products(real):
        both = dispatch.convert(
            matrix_products.matmul(dispatch.convert(both, "float64"), matrix), dtype
        )
    else:
        both = matrix_products.matmul(both, matrix.astype(dtype))
    return _first(both, length), indexing.get_item(both, (..., slice(length, None)))


def _rounds_products(x: Any) -> bool:
    """Whether products of it may be in TF32, of whose few digits a spectrum is made up."""
    trace = tracing.current()
    device = x.device if trace is None else trace.device
    return bool(x.dtype == "float32" and device != "cpu" and config.tf32())


def _product(real: Any, imaginary: Any, angles: Array) -> Pair:
    """Complex numbers times those of absolute value 1 at some angles."""
    cosines, sines = (f(angles).astype(real.dtype) for f in (np.cos, np.sin))
    return (
        elementwise.subtract(
            elementwise.multiply(real, cosines), elementwise.multiply(imaginary, sines)
        ),
        elementwise.add(
            elementwise.multiply(real, sines), elementwise.multiply(imaginary, cosines)
        ),
    )


def _as_convolution(real: Any, imaginary: Any, sign: int) -> Pair:
    """A transform of any length: as j * k = (j^2 + k^2 - (k - j)^2) / 2, a convolution."""
    length = real.shape[-1]
    size = 1 << (2 * length - 2).bit_length()
    # Squares beyond two turns would lose digits.
    angles = np.arange(length) ** 2 % (2 * length) * (sign * np.pi / length)
    kernel = np.zeros(size, complex)
    kernel[:length] = np.exp(-1j * angles)
    kernel[size - length + 1 :] = kernel[length - 1 : 0 : -1]
    spectrum = np.fft.fft(kernel) / size
    a, b = _product(real, imaginary, angles)
    a, b = _recursive(_of_length(a, size), _of_length(b, size), -1)
    cosines, sines = spectrum.real.astype(real.dtype), spectrum.imag.astype(real.dtype)
    real = elementwise.subtract(elementwise.multiply(a, cosines), elementwise.multiply(b, sines))
    imaginary = elementwise.add(elementwise.multiply(a, sines), elementwise.multiply(b, cosines))
    a, b = _recursive(real, imaginary, 1)
    return _product(_first(a, length), _first(b, length), angles)


def _over_two_axes(pair: Pair, sign: int) -> Pair:
    real, imaginary = _transform(*pair, sign)
    real, imaginary = shaping.swapaxes(real, -1, -2), shaping.swapaxes(imaginary, -1, -2)
    real, imaginary = _transform(real, imaginary, sign)
    return shaping.swapaxes(real, -1, -2), shaping.swapaxes(imaginary, -1, -2)


def _overlapped(pieces: Any, stride: int) -> Any:
    """The sum of pieces (..., count, length), each `stride` samples behind the one before."""
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
    """The last axis cut, or filled up with 0."""
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
    """The window with zeros on both sides."""
    if isinstance(window, str):
        if window not in ("hann", "hamming"):
            raise ValueError(
                f'{name}: a window is "hann", "hamming", a vector or None. Received: {window!r}'
            )
        # Periodic, as spectra have it: one sample more, without the last.
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
