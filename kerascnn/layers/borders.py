"""Numbers of elements at the ends of the axes of signals, images and volumes."""

from __future__ import annotations

from typing import Any

from kerascnn.layers.arguments import standardize_tuple


def standardize_borders(value: Any, axes: int, name: str) -> tuple[tuple[int, ...], ...]:
    """Numbers of elements (before, after) each axis, from a number, one per axis, or pairs.

    Raises:
        ValueError: for anything else, and for negative numbers.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value,) * axes
    if not isinstance(value, (list, tuple)) or len(value) != axes:
        raise ValueError(
            f"`{name}` must be an integer, or a tuple of {axes} integers or pairs of integers. "
            f"Received: {name}={value!r}"
        )
    return tuple(
        standardize_tuple(entry, 2, f"{name}[{i}]", allow_zero=True)
        for i, entry in enumerate(value)
    )


def first_spatial_axis(data_format: str) -> int:
    """The axis that the first spatial size is on."""
    return 2 if data_format == "channels_first" else 1
