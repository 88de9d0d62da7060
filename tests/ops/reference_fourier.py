"""NumPy computes the Fourier transforms in float64 as sums over all elements."""

from __future__ import annotations

import numpy as np

from .reference import reference


def _waves(length, sign, count=None):
    """Returns (n, k): the factor of absolute value 1 of input element n in output element k."""
    turns = np.outer(np.arange(length), np.arange(length if count is None else count))
    angles = sign * 2 * np.pi * (turns % max(length, 1)) / max(length, 1)
    # A quarter of a turn must have no rounding error: a 0 must not be compared with 1e-16.
    cosines, sines = (np.where(np.abs(v) < 1e-15, 0.0, v) for v in (np.cos(angles), np.sin(angles)))
    return cosines + 1j * sines


def _of_half(length, middle):
    """Returns `middle` for the elements of a half spectrum that stand for two, else 1."""
    places = np.arange(length // 2 + 1)
    return np.where((places == 0) | (2 * places == length), 1.0, middle)


@reference("fft")
def fft(real, imaginary, inverse, scale):
    waves = _waves(real.shape[-1], 1 if inverse else -1)
    result = scale * ((real + 1j * imaginary) @ waves)
    return result.real, result.imag


@reference("rfft")
def rfft(x, scale, middle):
    length = x.shape[-1]
    result = scale * (x @ _waves(length, -1, length // 2 + 1)) * _of_half(length, middle)
    return result.real, result.imag


@reference("irfft")
def irfft(real, imaginary, length, scale, middle):
    half = (real + 1j * imaginary) * _of_half(length, middle)
    # An element that stands for two counts twice: as itself and as its conjugate.
    counted = half * _of_half(length, 2.0)
    return scale * (counted @ _waves(length, 1, length // 2 + 1).T).real
