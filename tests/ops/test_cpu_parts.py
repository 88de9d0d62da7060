"""Calls that the CPU's threads share in parts: each part is right, and sums have one order.

The sizes have at least the four million operations from which convolutions and products are cut,
and numbers of images, rows and columns that the parts don't divide.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

# Images, height, width, channels, filters, kernel, strides.
CONVOLUTIONS = [
    (37, 16, 15, 32, 24, 3, 1),
    (13, 17, 19, 24, 40, 3, 2),
    (19, 14, 13, 32, 48, 1, 1),
    (21, 12, 14, 40, 64, 1, 2),
    (2, 40, 38, 16, 32, 5, 1),  # fewer images than threads
    (67, 5, 4, 128, 192, 3, 1),  # reordered kernels that several threads copy
]
# Matrices, rows, depth, columns.
PRODUCTS = [
    (1, 1003, 60, 77),
    (1, 31, 301, 997),
    (1, 303, 301, 331),  # both sides have enough parts
    (7, 200, 61, 130),
    (2, 203, 101, 130),
    (1, 200, 3001, 64),  # long sums, as in gradients of weights
    (1, 77, 2503, 130),
]

PROGRAM = """
import hashlib, json, sys
import numpy as np
import kerascnn as keras
from kerascnn import ops

keras.config.set_device("cpu")
with np.load(sys.argv[1]) as file:
    calls = {name: ops.convert_to_tensor(file[name]) for name in file.files}
def results():
    found = {}
    for i, strides in enumerate(json.loads(sys.argv[3])):
        x, kernel, upper = (calls[f"{name}{i}"] for name in ("x", "kernel", "upper"))
        with keras.GradientTape() as tape:
            tape.watch([x, kernel])
            y = ops.conv(x, kernel, strides=strides, padding="same")
            loss = ops.sum(y * upper)
        fused = keras.jit(lambda x, k: ops.relu(ops.conv(x, k, strides=strides, padding="same")))
        found[f"y{i}"], found[f"relu{i}"] = y, fused(x, kernel)
        found[f"gx{i}"], found[f"gkernel{i}"] = tape.gradient(loss, [x, kernel])
    for i in range(int(sys.argv[4])):
        found[f"product{i}"] = ops.matmul(calls[f"a{i}"], calls[f"b{i}"])
        a = ops.transpose(calls[f"a{i}"], (0, 2, 1))
        b = ops.transpose(calls[f"b{i}"], (0, 2, 1))
        found[f"turned{i}"] = keras.jit(
            lambda a, b: ops.matmul(ops.transpose(a, (0, 2, 1)), ops.transpose(b, (0, 2, 1)))
        )(a, b)
        found[f"left{i}"] = keras.jit(
            lambda a, b: ops.matmul(ops.transpose(a, (0, 2, 1)), b)
        )(a, calls[f"b{i}"])
    return {name: np.asarray(value) for name, value in found.items()}
first = results()
for _ in range(3):
    for name, value in results().items():
        assert value.tobytes() == first[name].tobytes(), name
np.savez(sys.argv[2], **first)
"""


def patches_of(x, size, strides):
    """Returns an array (images, rows, columns, size, size, channels) and the padding before."""
    sides = [-(-n // strides) for n in x.shape[1:3]]
    pads = [
        max((out - 1) * strides + size - n, 0) for out, n in zip(sides, x.shape[1:3], strict=True)
    ]
    before = [pad // 2 for pad in pads]
    x = np.pad(x, [(0, 0), *((b, p - b) for b, p in zip(before, pads, strict=True)), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))
    return windows[:, ::strides, ::strides].transpose(0, 1, 2, 4, 5, 3), before


def reference(x, kernel, upper, strides):
    """Returns the convolution, its relu, and the gradients of its sum with weights `upper`."""
    x, kernel, upper = (values.astype(np.float64) for values in (x, kernel, upper))
    size = kernel.shape[0]
    patches, before = patches_of(x, size, strides)
    y = np.tensordot(patches, kernel, 3)
    parts = np.tensordot(upper, kernel, (3, 3))  # (images, rows, columns, size, size, channels)
    gx = np.zeros((x.shape[0], x.shape[1] + 2 * size, x.shape[2] + 2 * size, x.shape[3]))
    for i in range(size):
        for j in range(size):
            gx[
                :, i : i + strides * y.shape[1] : strides, j : j + strides * y.shape[2] : strides
            ] += parts[:, :, :, i, j]
    top, left = before
    gx = gx[:, top : top + x.shape[1], left : left + x.shape[2]]
    return y, np.maximum(y, 0), gx, np.tensordot(patches, upper, ((0, 1, 2), (0, 1, 2)))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parts_give_the_whole(threads, rng, tmp_path):
    arrays, expected = {}, {}
    for i, (images, height, width, channels, filters, size, strides) in enumerate(CONVOLUTIONS):
        x = rng.normal(size=(images, height, width, channels)).astype(np.float32)
        kernel = rng.normal(size=(size, size, channels, filters)).astype(np.float32)
        out = (images, -(-height // strides), -(-width // strides), filters)
        upper = rng.normal(size=out).astype(np.float32)
        arrays |= {f"x{i}": x, f"kernel{i}": kernel, f"upper{i}": upper}
        names = f"y{i}", f"relu{i}", f"gx{i}", f"gkernel{i}"
        expected |= dict(zip(names, reference(x, kernel, upper, strides), strict=True))
    for i, (batch, rows, depth, columns) in enumerate(PRODUCTS):
        a = rng.normal(size=(batch, rows, depth)).astype(np.float32)
        b = rng.normal(size=(batch, depth, columns)).astype(np.float32)
        arrays |= {f"a{i}": a, f"b{i}": b}
        names = f"product{i}", f"turned{i}", f"left{i}"
        expected |= dict.fromkeys(names, a.astype(np.float64) @ b)
    given, found = tmp_path / "given.npz", tmp_path / "found.npz"
    np.savez(given, **arrays)
    strides = json.dumps([case[-1] for case in CONVOLUTIONS])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given, found, strides, str(len(PRODUCTS))],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "KERASCNN_NUM_THREADS": str(threads)},
    )
    assert done.returncode == 0, done.stderr
    with np.load(found) as file:
        for name, value in expected.items():
            # Sums of up to 9,000 products of float32: roundings are a few 1e-7 of the largest.
            tolerance = 4e-6 * np.abs(value).max()
            np.testing.assert_allclose(file[name], value, rtol=0, atol=tolerance, err_msg=name)
