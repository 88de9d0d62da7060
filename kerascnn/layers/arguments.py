"""Checks of the arguments that several layers have in common."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from kerascnn import seed_generators
from kerascnn.ops import windows


def standardize_tuple(value: Any, n: int, name: str, allow_zero: bool = False) -> tuple[int, ...]:
    """One integer for all of `n` axes, or one for each.

    Raises:
        ValueError: for anything else.
    """
    return tuple(windows.sizes(value, n, name, lowest=0 if allow_zero else 1))


def positive_integer(value: Any, name: str) -> int:
    """An integer from 1 on; else a ValueError."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return operator.index(value)


def make_generator(seed: Any) -> seed_generators.SeedGenerator | None:
    """Makes a layer's own generator for a seed; for None returns that of the program."""
    if seed is None or isinstance(seed, seed_generators.SeedGenerator):
        return seed
    return seed_generators.SeedGenerator(seed)


def standardize_padding(value: Any, allow_causal: bool = False) -> str:
    """ "valid", "same" or, where that is allowed, "causal" in lower case.

    Raises:
        ValueError: for anything else.
    """
    padding = value.lower() if isinstance(value, str) else value
    allowed = ("valid", "same", "causal") if allow_causal else ("valid", "same")
    if padding not in allowed:
        names = " or ".join(repr(name) for name in allowed)
        raise ValueError(f"`padding` must be {names}. Received: padding={value!r}")
    return padding


_AXES = {1: "steps", 2: "height, width", 3: "depth, height, width"}


def spatial_sizes(
    shape: Sequence[int | None], data_format: str, rank: int = 2
) -> tuple[tuple[int | None, ...], int | None]:
    """The sizes of the spatial axes (height and width), and the channels, of a shape with batch.

    Raises:
        ValueError: for a shape that does not have `rank` spatial axes.
    """
    if len(shape) != rank + 2:
        raise ValueError(
            f"The input needs {rank + 2} axes: the batch, {_AXES[rank]} and channels. "
            f"Received: input_shape={tuple(shape)}"
        )
    if data_format == "channels_last":
        return tuple(shape[1:-1]), shape[-1]
    return tuple(shape[2:]), shape[1]


def image_shape(
    batch: int | None, sizes: Sequence[int | None], channels: int | None, data_format: str
) -> tuple[int | None, ...]:
    """A shape with batch, the channels where they belong."""
    if data_format == "channels_last":
        return (batch, *sizes, channels)
    return (batch, channels, *sizes)


def window_output_sizes(
    layer: Any,
    sizes: Sequence[int | None],
    window: Sequence[int],
    strides: Sequence[int],
    padding: str,
    dilations: Sequence[int] | None = None,
) -> tuple[int | None, ...]:
    """Sizes of an image (or sequence, or volume) after a window has gone over it.

    Raises:
        ValueError: where the window does not fit into the image.
    """
    dilations = [1] * len(window) if dilations is None else dilations
    result: list[int | None] = []
    for n, k, s, d in zip(sizes, window, strides, dilations, strict=True):
        if n is None:
            result.append(None)
            continue
        reach = d * (k - 1) + 1
        out = -(-n // s) if padding != "valid" else (n - reach) // s + 1
        if out < 1:
            reaches = tuple(e * (w - 1) + 1 for w, e in zip(window, dilations, strict=True))
            raise ValueError(
                f"Layer '{layer.name}' ({type(layer).__name__}): its window of {tuple(window)} "
                f"reaches over {reaches} pixels, but its input has only {tuple(sizes)}. Use a "
                "smaller window, padding='same', larger inputs, or less pooling before."
            )
        result.append(out)
    return tuple(result)
