"""The parts of a batch, in the form that `train_step` and similar methods get."""

from __future__ import annotations

from typing import Any


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """Returns what a step gets as `(x, y, sample_weight)`, with `None` for what is absent.

    Args:
        data: `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

    Returns:
        `(x, y, sample_weight)`.

    Raises:
        ValueError: for a longer tuple.

    Example:

    >>> keras.utils.unpack_x_y_sample_weight((1, 2))
    (1, 2, None)
    """
    if isinstance(data, list):
        data = tuple(data)
    if not isinstance(data, tuple):
        return data, None, None
    if not 1 <= len(data) <= 3:
        raise ValueError(
            "A batch must be `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`. Received: "
            f"{len(data)} parts: {data}"
        )
    return (*data, None, None)[:3]


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """The parts of a batch in the form that `fit` passes on: the shortest that has all.

    Args:
        x: inputs.
        y: targets, or `None`.
        sample_weight: weights, or `None`.

    Returns:
        `x` (`(x,)` for a list or tuple), `(x, y)` or `(x, y, sample_weight)`.

    Example:

    >>> keras.utils.pack_x_y_sample_weight(1, 2)
    (1, 2)
    """
    if y is None:
        return (x,) if isinstance(x, (list, tuple)) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)
