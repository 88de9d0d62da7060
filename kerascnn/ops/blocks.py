"""Tensors taken apart into blocks and put together again, and axes rearranged by their names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import file_budget
from kerascnn.ops import dispatch, indexing, scattering, shaping, windows
from kerascnn.symbolic.operation import op

__all__ = ["fold", "rearrange", "unfold"]

Sizes = int | Sequence[int]


def _window(
    kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> tuple[list[int], list[int], list[int], list[int]]:
    return (
        windows.sizes(kernel_size, 2, "kernel_size"),
        windows.sizes(dilation, 2, "dilation"),
        windows.sizes(padding, 2, "padding", lowest=0),
        windows.sizes(stride, 2, "stride"),
    )


@op
def unfold(
    x: Any, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Any:
    """The blocks of images that a window sees, each as a column.

    `image.extract_patches` does the same for images whose channels come last.

    Args:
        x: (n, channels, height, width) of any dtype.
        kernel_size: Height and width of the window, or one number for both.
        dilation: Steps between the pixels of a block.
        padding: Zeros above and below, and left and right.
        stride: Steps from one block to the next.

    Returns:
        (n, channels * height * width of the window, blocks) in the dtype of x.

    Raises:
        ValueError: for another number of axes, or a window larger than the images.

    Example:

    >>> from kerascnn import ops
    >>> ops.unfold(ops.ones((1, 2, 4, 4)), 2, stride=2).shape
    (1, 8, 4)
    """
    x = dispatch.convert(x)
    if len(x.shape) != 4:
        raise ValueError(f"Input must be a 4D tensor. Received: input.shape={tuple(x.shape)}")
    window, dilations, margins, steps = _window(kernel_size, dilation, padding, stride)
    pads = [(margin, margin) for margin in margins]
    windows.check_fits("unfold", list(x.shape[2:]), window, pads, dilations)
    if any(margins):
        x = shaping.pad(x, [(0, 0), (0, 0), *pads])
    for axis, i in ((2, 0), (4, 1)):
        x = windows.cut(x, axis, window[i], steps[i], dilations[i])
    n, channels, rows, _, columns, _ = x.shape
    x = shaping.transpose(x, (0, 1, 3, 5, 2, 4))
    return shaping.reshape(x, (n, channels * window[0] * window[1], rows * columns))


@op
def fold(
    x: Any,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Any:
    """Images that blocks add up to where they overlap: the adjoint of `unfold`.

    Args:
        x: (n, channels * height * width of the window, blocks)
        output_size: Height and width of the images, or one number for both.
        kernel_size: As for `unfold`.
        dilation: As for `unfold`.
        padding: As for `unfold`; these borders are cut off.
        stride: As for `unfold`.

    Returns:
        (n, channels, height, width) in the dtype of x.

    Raises:
        ValueError: for another number of axes, or of blocks or of rows than the sizes make.

    Example:

    >>> from kerascnn import ops
    >>> columns = ops.unfold(ops.ones((1, 1, 3, 3)), 2)
    >>> ops.fold(columns, 3, 2)[0, 0].numpy().tolist()
    [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    x = dispatch.convert(x)
    if len(x.shape) != 3:
        raise ValueError(f"Input must be a 3D tensor. Received: input.shape={tuple(x.shape)}")
    window, dilations, margins, steps = _window(kernel_size, dilation, padding, stride)
    sizes = windows.sizes(output_size, 2, "output_size")
    wide = [size + 2 * margin for size, margin in zip(sizes, margins, strict=True)]
    reach = [d * (k - 1) + 1 for k, d in zip(window, dilations, strict=True)]
    blocks = [(w - r) // s + 1 for w, r, s in zip(wide, reach, steps, strict=True)]
    area = window[0] * window[1]
    n, rows, count = x.shape
    if min(blocks) < 1 or rows % area or count != blocks[0] * blocks[1]:
        raise ValueError(
            f"fold: a window of {tuple(window)} over images of {tuple(sizes)} makes blocks of a "
            f"multiple of {area} rows, {max(blocks[0], 0)} x {max(blocks[1], 0)} of them. "
            f"Received: x.shape={tuple(x.shape)}"
        )
    channels = rows // area
    x = shaping.reshape(x, (n, channels, area * count))
    x = shaping.reshape(shaping.transpose(x, (2, 0, 1)), (area * count, n * channels))
    # This is where each element of each block goes along both axes: (window, blocks).
    file_budget.check_positions(math.prod(window) * math.prod(blocks), "unfold")
    down, right = (
        np.arange(k)[:, None] * d + np.arange(b) * s
        for k, d, b, s in zip(window, dilations, blocks, steps, strict=True)
    )
    places = down[:, None, :, None] * wide[1] + right[None, :, None, :]
    places = dispatch.convert(places.reshape(-1).astype("int32"), like=x)
    total = scattering.sums(x, places, wide[0] * wide[1])
    total = shaping.reshape(total, (*wide, n, channels))
    inside = tuple(slice(m, m + size) for m, size in zip(margins, sizes, strict=True))
    return shaping.transpose(indexing.get_item(total, inside), (2, 3, 0, 1))


@op
def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """Axes split, reordered and joined as a pattern of names says.

    Args:
        tensor: Tensor of any shape and dtype.
        pattern: Names of its axes, "->", and the same names in another order. Names in parentheses
            are one axis: on the left it is split, on the right they are joined.
        axes_lengths: Sizes of names; of each axis that is split, all but one must be known.

    Returns:
        A tensor in the dtype of `tensor`, with an axis for each name or parentheses on the right.

    Raises:
        ValueError: for a pattern that does not fit the tensor.

    Source: the notation of https://einops.rocks

    Example:

    >>> from kerascnn import ops
    >>> images = ops.ones((2, 6, 8, 3))
    >>> ops.rearrange(images, "b (h p) (w q) c -> b h w (c p q)", p=2, q=2).shape
    (2, 3, 4, 12)
    """
    tensor = dispatch.convert(tensor)
    before, after = _groups(pattern)
    if len(before) != len(tensor.shape):
        raise ValueError(
            f"rearrange: the pattern {pattern!r} has {len(before)} axes on its left, the tensor "
            f"{len(tensor.shape)}: {tuple(tensor.shape)}"
        )
    sizes: dict[str, int] = {}
    for group, length in zip(before, tensor.shape, strict=True):
        sizes.update(_split_sizes(group, length, axes_lengths, pattern))
    names = [name for group in before for name in group]
    order = [name for group in after for name in group]
    if sorted(names) != sorted(order) or len(set(names)) != len(names):
        raise ValueError(
            f"rearrange: each name must be once on either side of the pattern {pattern!r}."
        )
    x = shaping.reshape(tensor, [sizes[name] for name in names])
    x = shaping.transpose(x, [names.index(name) for name in order])
    return shaping.reshape(x, [int(np.prod([sizes[name] for name in g])) for g in after])


def _groups(pattern: str) -> list[list[list[str]]]:
    """Returns the names of each axis on both sides of a pattern."""
    sides = pattern.split("->") if isinstance(pattern, str) else []
    axis = r"\(([^()]*)\)|(\w+)"
    if len(sides) != 2 or any(re.sub(axis, "", side).strip() for side in sides):
        raise ValueError(
            "rearrange: a pattern is made of names, parentheses and one '->', as in "
            f"'b h w c -> b c (h w)'. Received: pattern={pattern!r}"
        )
    return [
        [match[1].split() if match[2] is None else [match[2]] for match in re.finditer(axis, side)]
        for side in sides
    ]


def _split_sizes(
    group: list[str], length: int, known: dict[str, int], pattern: str
) -> dict[str, int]:
    """Returns the sizes into which an axis is split."""
    sizes = {name: int(known[name]) for name in group if name in known}
    missing = [name for name in group if name not in known]
    product = int(np.prod(list(sizes.values())))
    if len(missing) == 1 and product:
        sizes[missing[0]] = length // product
        product *= sizes[missing[0]]
    if len(missing) > 1 or product != length:
        raise ValueError(
            f"rearrange: an axis of size {length} cannot be split into ({' '.join(group)}) of the "
            f"pattern {pattern!r} with {known or 'no given sizes'}; all but one of its sizes must "
            "be given, and their product divide it."
        )
    return sizes
