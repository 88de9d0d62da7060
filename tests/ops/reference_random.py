"""The ops that draw random numbers: Philox 4x32-10, with one block for four elements."""

from __future__ import annotations

import math

import numpy as np

from .reference import Array, is_float_name, reference


def philox_words(rng: Array, stream: int, count: int) -> Array:
    """Returns the `count` 32-bit words (as uint64) of the elements 0, 1, ... of a call."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    seed = int(np.asarray(rng[0]).astype(np.uint64))
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    state_counter = np.uint64(int(rng[1]) & 0xFFFFFFFF)
    c = [block & mask, block >> shift, np.full_like(block, state_counter),
         np.full_like(block, np.uint64(stream))]  # fmt: skip
    for _ in range(10):
        first = np.uint64(0xD2511F53) * c[0]
        second = np.uint64(0xCD9E8D57) * c[2]
        c = [(second >> shift) ^ c[1] ^ key[0], second & mask,
             (first >> shift) ^ c[3] ^ key[1], first & mask]  # fmt: skip
        key = [np.uint64((int(key[0]) + 0x9E3779B9) & 0xFFFFFFFF),
               np.uint64((int(key[1]) + 0xBB67AE85) & 0xFFFFFFFF)]  # fmt: skip
    return np.stack(c, axis=1).reshape(-1)[:count]


def _size(shape) -> int:
    return math.prod(shape)


@reference("random_uniform")
def random_uniform(rng, shape, dtype, minval, maxval, stream):
    words = philox_words(rng, stream, _size(shape))
    if dtype == "float64":
        unit = words.astype(np.float64) * 2.0**-32
    else:
        minval, maxval = np.float32(minval), np.float32(maxval)
        unit = (words >> np.uint64(8)).astype(np.float64) * 2.0**-24
        value = unit * np.float64(maxval - minval) + np.float64(minval)
        value = value.astype(np.float32)
        return np.where(value < maxval, value, minval).astype(np.float64).reshape(shape)
    value = unit * (maxval - minval) + minval
    return np.where(value < maxval, value, minval).reshape(shape)


@reference("random_normal")
def random_normal(rng, shape, dtype, mean, stddev, stream):
    del dtype
    count = _size(shape)
    words = (philox_words(rng, stream, count + count % 2) >> np.uint64(8)).astype(np.float64)
    radius = np.sqrt(-2 * np.log((words[0::2] + 1) * 2.0**-24))
    theta = 2 * np.pi * words[1::2] * 2.0**-24
    pairs = np.stack([radius * np.cos(theta), radius * np.sin(theta)], axis=1)
    return mean + stddev * pairs.reshape(-1)[:count].reshape(shape)


def _kept(rng, probability: float, stream: int, shape) -> Array:
    words = philox_words(rng, stream, _size(shape)) >> np.uint64(8)
    return (words.astype(np.float64) * 2.0**-24 < probability).reshape(shape)


@reference("random_bernoulli")
def random_bernoulli(rng, shape, dtype, p, stream):
    kept = _kept(rng, p, stream, shape)
    return kept.astype(np.float64 if is_float_name(dtype) else dtype)


@reference("dropout")
def dropout(x, rng, rate, stream):
    scale = 0.0 if rate == 1 else 1 / (1 - rate)
    return np.where(_kept(rng, 1 - rate, stream, x.shape), x * scale, 0.0)


@reference("random_advance")
def random_advance(rng, amount):
    return rng + np.array([0, amount])
