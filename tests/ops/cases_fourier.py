"""Rows of the Fourier transforms."""

from __future__ import annotations

from .case import Bad, large, normal, row, zeros

# The lengths are small ones with a kernel of their own, products of several primes, primes, for
# which libraries use convolutions, and lines that several threads share.
SHAPES = {
    "one": (3, 1),
    "two": (4, 2),
    "vector": (12,),
    "odd": (5, 15),
    "even": (2, 3, 18),
    "prime": (3, 97),
    "long_prime": (2, 521),
    "power": (40, 64),
    "no_lines": (0, 6),
    "no_lines_inside": (2, 0, 5),
}


def _pair(shape, **attributes):
    return lambda rng: ([normal(rng, *shape), normal(rng, *shape)], attributes)


def _real(shape, **attributes):
    return lambda rng: ([normal(rng, *shape)], attributes)


def _half(shape, **attributes):
    *leading, length = shape
    return _pair((*leading, length // 2 + 1), length=length, **attributes)


def _rows():
    rows = []
    for id, shape in SHAPES.items():
        scale = 1 / shape[-1]
        rows += [
            row("fft", id, _pair(shape, inverse=False, scale=1.0)),
            row("fft", f"{id}_inverse", _pair(shape, inverse=True, scale=scale)),
            row("rfft", id, _real(shape, scale=1.0, middle=1.0)),
            row("irfft", id, _half(shape, scale=scale, middle=1.0)),
        ]
    return rows


CASES = [
    *_rows(),
    row("fft", "real_part_only", _pair((3, 20), inverse=False, scale=0.5), loss_outputs=(0,)),
    row("fft", "imaginary_part_only", _pair((3, 20), inverse=True, scale=1.0), loss_outputs=(1,)),
    row("fft", "no_elements", _pair((3, 0), inverse=False, scale=1.0)),
    row("rfft", "weighted", _real((3, 20), scale=0.25, middle=3.0)),
    row("rfft", "weighted_odd", _real((3, 21), scale=2.0, middle=0.5)),
    row("rfft", "real_part_only", _real((3, 20), scale=1.0, middle=1.0), loss_outputs=(0,)),
    row("rfft", "imaginary_part_only", _real((3, 9), scale=1.0, middle=1.0), loss_outputs=(1,)),
    row("irfft", "weighted", _half((3, 20), scale=0.25, middle=3.0)),
    row("irfft", "weighted_odd", _half((3, 21), scale=2.0, middle=0.5)),
    large("fft", _pair((65_600, 3), inverse=False, scale=1.0)),
    large("rfft", _real((65_600, 6), scale=1.0, middle=1.0)),
    large("irfft", _half((65_600, 5), scale=0.2, middle=1.0)),
]

_FFT = {"inverse": False, "scale": 1.0}
_RFFT = {"scale": 1.0, "middle": 1.0}
_IRFFT = {"length": 6, **_RFFT}

BAD = [
    Bad("fft", [zeros(3)], _FFT, ValueError, "fft: expected 2 inputs, received 1"),
    Bad("fft", [zeros(), zeros()], _FFT, ValueError, "fft: the input must have an axis"),
    Bad("fft", [zeros(3), zeros(4)], _FFT, ValueError, "fft: "),
    Bad("fft", [zeros(3), zeros(3, dtype="float64")], _FFT, TypeError, "fft: all inputs must have"),
    Bad("fft", [zeros(3, dtype="int32")] * 2, _FFT, TypeError, "fft: the input must be floating"),
    Bad("rfft", [zeros(2, 0)], _RFFT, ValueError, "rfft: the last axis must have one element"),
    Bad("rfft", [zeros(3, dtype="int32")], _RFFT, TypeError, "rfft: the input must be floating"),
    Bad("irfft", [zeros(3), zeros(3)], _IRFFT, ValueError, "irfft: for a positive length n the"),
    Bad("irfft", [zeros(1)] * 2, {"length": 0, **_RFFT}, ValueError, "Received: length=0"),
]
