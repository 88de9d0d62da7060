"""Readers of ONNX's ops for images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerascnn import layers, ops
from kerascnn.onnx_files.importer import OPEN, Node, Value
from kerascnn.onnx_files.read_layers import reads


@reads("Resize")
def _resize(node: Node) -> list[Any]:
    """Whole factors by repetition, and others by interpolation about the middles of pixels."""
    x = node.value(0)
    if x.rank != 4 or None in x.shape[2:]:
        raise node.error("only images of a known size are resized.")
    own = [int(n or 0) for n in x.shape[2:]]
    if node.has_input(3):
        sizes = node.numbers(3)
    else:
        scales = node.constant(2)
        if scales.shape != (4,) or scales.dtype.kind != "f" or not np.isfinite(scales).all():
            raise node.error("its scales do not fit (batch, channels, height, width).")
        sizes = [1, 1, *(math.floor(n * s) for n, s in zip(own, scales[2:], strict=True))]
    if len(sizes) != 4 or any(n is OPEN or not 0 < n < 1 << 16 for n in sizes[2:]):
        raise node.error(f"the size {sizes[:40]} is none.")
    factors = [a / b for a, b in zip(sizes[2:], own, strict=True)]
    mode = node.text("mode", "nearest")
    place = node.text("coordinate_transformation_mode", "half_pixel")
    name = node.importer.name(node.name)
    if mode == "nearest" and all(f == int(f) for f in factors):
        repetition = layers.UpSampling2D(
            [int(f) for f in factors], data_format="channels_last", name=name
        )
        return [Value(last=repetition(x.last))]
    # PyTorch's positions are others where a single pixel is left.
    is_alone = any(b == 1 < a for a, b in zip(own, sizes[2:], strict=True))
    places = ("half_pixel",) if is_alone else ("half_pixel", "pytorch_half_pixel")
    methods = {"linear": "bilinear"}
    if node.real("cubic_coeff_a", -0.75) == -0.75 and not node.whole("exclude_outside", 0):
        methods["cubic"] = "bicubic"
    if mode in methods and place in places and not node.whole("antialias", 0):
        height, width = sizes[2:]
        layer = layers.Resizing(
            height,
            width,
            interpolation=methods[mode],
            data_format="channels_last",
            name=name,
        )
        return [Value(last=layer(x.last))]
    raise node.error(f"mode={mode!r} by {factors} with {place!r} is not known.")


@reads("DepthToSpace")
def _depth_to_space(node: Node) -> list[Any]:
    x, block = node.value(0), node.whole("blocksize", 1)
    if x.rank != 4 or None in x.shape[1:] or not 0 < block < 1 << 12 or x.shape[1] % block**2:
        raise node.error(f"blocks of {block} do not fit {x.shape}.")
    c, h, w = (int(n) for n in x.shape[1:] if n is not None)
    few = c // block**2
    if node.text("mode", "DCR") == "DCR":
        y = ops.transpose(ops.reshape(x.plain, (-1, block, block, few, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = ops.transpose(ops.reshape(x.plain, (-1, few, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return [Value(plain=ops.reshape(y, (-1, few, h * block, w * block)))]
