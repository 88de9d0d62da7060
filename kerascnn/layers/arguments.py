"""Checks of the arguments that several layers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def standardize_pair(value: Any, name: str, allow_zero: bool = False) -> tuple[int, int]:
    """One integer for both axes of an image, or one for each.

    Raises:
        ValueError: for anything else.
    """
    lowest = 0 if allow_zero else 1
    values: Sequence[Any]
    if isinstance(value, int) and not isinstance(value, bool):
        values = (value, value)
    else:
        values = tuple(value) if isinstance(value, (list, tuple)) else ()
    if len(values) != 2 or not all(isinstance(v, int) and v >= lowest for v in values):
        raise ValueError(
            f"`{name}` must be an integer from {lowest} on, or two of them. "
            f"Received: {name}={value!r}"
        )
    return values[0], values[1]


def standardize_padding(value: Any) -> str:
    """ "valid" or "same" in lower case.

    Raises:
        ValueError: for anything else.
    """
    padding = value.lower() if isinstance(value, str) else value
    if padding not in ("valid", "same"):
        raise ValueError(f"`padding` must be 'valid' or 'same'. Received: padding={value!r}")
    return padding


def spatial_sizes(
    shape: Sequence[int | None], data_format: str
) -> tuple[tuple[int | None, ...], int | None]:
    """Height and width, and the channels, of a shape with batch.

    Raises:
        ValueError: for a shape that does not have 4 sizes.
    """
    if len(shape) != 4:
        raise ValueError(
            "Images have 4 axes: the batch, height, width and channels. "
            f"Received: input_shape={tuple(shape)}"
        )
    if data_format == "channels_last":
        return tuple(shape[1:3]), shape[3]
    return tuple(shape[2:4]), shape[1]


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
    dilations: Sequence[int] = (1, 1),
) -> tuple[int | None, ...]:
    """Sizes of an image after a window has gone over it.

    Raises:
        ValueError: where the window does not fit into the image.
    """
    result: list[int | None] = []
    for n, k, s, d in zip(sizes, window, strides, dilations, strict=True):
        if n is None:
            result.append(None)
            continue
        reach = d * (k - 1) + 1
        out = -(-n // s) if padding == "same" else (n - reach) // s + 1
        if out < 1:
            reaches = tuple(e * (w - 1) + 1 for w, e in zip(window, dilations, strict=True))
            raise ValueError(
                f"Layer '{layer.name}' ({type(layer).__name__}): its window of {tuple(window)} "
                f"reaches over {reaches} pixels, but its input has only {tuple(sizes)}. Use a "
                "smaller window, padding='same', larger images, or less pooling before."
            )
        result.append(out)
    return tuple(result)
