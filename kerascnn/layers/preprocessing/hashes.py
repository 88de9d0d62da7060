"""Hashes of text, with the values that TensorFlow gives: the same in every program and version.

Text of one length is hashed at once, as columns of unsigned integers that wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

U64 = np.ndarray[Any, np.dtype[np.uint64]]

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)
_CROSS_KEY = 0xDECAFCAFFE
_CROSS_FACTOR = np.uint64(0xC6A4A7935BD1E995)


def fingerprints(texts: Sequence[str | bytes]) -> U64:
    """FarmHash's Fingerprint64 of each text, in UTF-8.

    Source: https://github.com/google/farmhash

    >>> int(fingerprints(["1footrue"])[0].astype("int64"))
    -1541654101129638711
    """
    return _by_length(texts, _fingerprint)


def keyed_hashes(texts: Sequence[str | bytes], key: Sequence[int]) -> U64:
    """SipHash-2-4 of each text, in UTF-8, for a key of two numbers.

    Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.
    """
    first, second = (np.uint64(int(k) % 2**64) for k in key)
    return _by_length(texts, lambda data: _siphash(data, first, second))


def buckets(texts: Sequence[str | bytes], count: int, key: Sequence[int] | None = None) -> Any:
    """Returns a number below `count` for each text: its hash, or with a key the keyed one."""
    hashes = fingerprints(texts) if key is None else keyed_hashes(texts, key)
    return (hashes % np.uint64(count)).astype(np.int64)


def crossed(columns: Sequence[Any], count: int) -> Any:
    """Returns a number below `count` for each row of several columns of text or integers."""
    result = np.full(len(columns[0]), _CROSS_KEY, np.uint64)
    for column in columns:
        is_text = column.dtype.kind in "OUS"
        own = fingerprints(column) if is_text else column.astype(np.int64).view(np.uint64)
        result = result ^ _CROSS_FACTOR
        result = (result ^ (_mixed(own * _CROSS_FACTOR) * _CROSS_FACTOR)) * _CROSS_FACTOR
        result = _mixed(_mixed(result) * _CROSS_FACTOR)
    return (result % np.uint64(count)).astype(np.int64)


def _by_length(texts: Sequence[str | bytes], function: Callable[[Any], U64]) -> U64:
    """Extends a function of texts of one length, (n, length) bytes, to texts of all lengths."""
    encoded = [text.encode() if isinstance(text, str) else bytes(text) for text in texts]
    lengths = np.array([len(text) for text in encoded], np.int64)
    result = np.zeros(len(encoded), np.uint64)
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        joined = b"".join(encoded[place] for place in places)
        result[places] = function(np.frombuffer(joined, np.uint8).reshape(len(places), length))
    return result


def _word(data: Any, at: int) -> U64:
    """Reads eight bytes from a place on as numbers."""
    return np.ascontiguousarray(data[:, at : at + 8]).view("<u8")[:, 0]


def _half_word(data: Any, at: int) -> U64:
    return np.ascontiguousarray(data[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)


def _rotated(x: U64, bits: int) -> U64:
    """Rotates the bits to the right."""
    return (x >> np.uint64(bits)) | (x << np.uint64(64 - bits))


def _mixed(x: U64) -> U64:
    return x ^ (x >> np.uint64(47))


def _joined(u: U64, v: U64, factor: Any) -> U64:
    a = _mixed((u ^ v) * factor)
    return _mixed((v ^ a) * factor) * factor


def _fingerprint(data: Any) -> U64:
    length = data.shape[1]
    if length <= 16:
        return _up_to_16(data)
    if length <= 32:
        return _up_to_32(data)
    return _up_to_64(data) if length <= 64 else _longer(data)


def _factor(length: int) -> Any:
    return np.array(_K2) + np.uint64(2 * length)


def _up_to_16(data: Any) -> U64:
    n, length = data.shape
    factor = _factor(length)
    if length >= 8:
        a, b = _word(data, 0) + _K2, _word(data, length - 8)
        c = _rotated(b, 37) * factor + a
        d = (_rotated(a, 25) + b) * factor
        return _joined(c, d, factor)
    if length >= 4:
        a = np.uint64(length) + (_half_word(data, 0) << np.uint64(3))
        return _joined(a, _half_word(data, length - 4), factor)
    if length == 0:
        return np.full(n, _K2)
    wide = data.astype(np.uint64)
    y = wide[:, 0] + (wide[:, length >> 1] << np.uint64(8))
    z = np.uint64(length) + (wide[:, length - 1] << np.uint64(2))
    return _mixed((y * _K2) ^ (z * _K0)) * _K2


def _up_to_32(data: Any) -> U64:
    length = data.shape[1]
    factor = _factor(length)
    a, b = _word(data, 0) * _K1, _word(data, 8)
    c, d = _word(data, length - 8) * factor, _word(data, length - 16) * _K2
    first = _rotated(a + b, 43) + _rotated(c, 30) + d
    return _joined(first, a + _rotated(b + _K2, 18) + c, factor)


def _up_to_64(data: Any) -> U64:
    length = data.shape[1]
    factor = _factor(length)
    a, b = _word(data, 0) * _K2, _word(data, 8)
    c, d = _word(data, length - 8) * factor, _word(data, length - 16) * _K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    z = _joined(y, a + _rotated(b + _K2, 18) + c, factor)
    e, f = _word(data, 16) * factor, _word(data, 24)
    g = (y + _word(data, length - 32)) * factor
    h = (z + _word(data, length - 24)) * factor
    first = _rotated(e + f, 43) + _rotated(g, 30) + h
    return _joined(first, e + _rotated(f + a, 18) + g, factor)


def _of_32(data: Any, at: int, a: U64, b: U64) -> tuple[U64, U64]:
    """Mixes 32 bytes and two seeds into two numbers."""
    w, x, y, z = (_word(data, at + 8 * i) for i in range(4))
    a = a + w
    b = _rotated(b + a + z, 21)
    c = a
    a = a + x + y
    b = b + _rotated(a, 44)
    return a + z, b + c


def _longer(data: Any) -> U64:
    n, length = data.shape
    seed = np.full(n, 81, np.uint64)
    x, y = seed * _K2 + _word(data, 0), seed * _K1 + np.uint64(113)
    z = _mixed(y * _K2 + np.uint64(113)) * _K2
    v = w = (np.zeros(n, np.uint64), np.zeros(n, np.uint64))
    last = (length - 1) // 64 * 64
    for at in range(0, last, 64):
        x, y, z, v, w = _block(data, at, x, y, z, v, w, _K1, np.uint64(1))
    factor = _K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    w = (w[0] + np.uint64((length - 1) & 63), w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    x, y, z, v, w = _block(data, length - 64, x, y, z, v, w, factor, np.uint64(9))
    first = _joined(v[0], w[0], factor) + _mixed(y) * _K0 + z
    return _joined(first, _joined(v[1], w[1], factor) + x, factor)


def _block(
    data: Any, at: int, x: U64, y: U64, z: U64, v: Any, w: Any, factor: Any, weight: Any
) -> Any:
    """Returns the state after 64 more bytes."""
    x = _rotated(x + y + v[0] + _word(data, at + 8), 37) * factor
    y = _rotated(y + v[1] + _word(data, at + 48), 42) * factor
    x = x ^ (w[1] * weight)
    y = y + v[0] * weight + _word(data, at + 40)
    z = _rotated(z + w[0], 33) * factor
    v = _of_32(data, at, v[1] * factor, x + w[0])
    w = _of_32(data, at + 32, z + w[1], y + _word(data, at + 16))
    return z, y, x, v, w


def _siphash(data: Any, first: Any, second: Any) -> U64:
    n, length = data.shape
    v: list[Any] = [
        np.full(n, first ^ np.uint64(0x736F6D6570736575)),
        np.full(n, second ^ np.uint64(0x646F72616E646F6D)),
        np.full(n, first ^ np.uint64(0x6C7967656E657261)),
        np.full(n, second ^ np.uint64(0x7465646279746573)),
    ]
    padded = np.zeros((n, length // 8 * 8 + 8), np.uint8)
    padded[:, :length] = data
    padded[:, -1] = length & 0xFF
    for at in range(0, padded.shape[1], 8):
        word = _word(padded, at)
        v[3] = v[3] ^ word
        v = _sip_round(_sip_round(v))
        v[0] = v[0] ^ word
    v[2] = v[2] ^ np.uint64(0xFF)
    for _ in range(4):
        v = _sip_round(v)
    result: U64 = v[0] ^ v[1] ^ v[2] ^ v[3]
    return result


def _sip_round(v: list[Any]) -> list[Any]:
    a, b, c, d = v
    a, c = a + b, c + d
    b, d = _rotated(b, 64 - 13) ^ a, _rotated(d, 64 - 16) ^ c
    a = _rotated(a, 32)
    c, a = c + b, a + d
    b, d = _rotated(b, 64 - 17) ^ c, _rotated(d, 64 - 21) ^ a
    return [a, b, _rotated(c, 32), d]
