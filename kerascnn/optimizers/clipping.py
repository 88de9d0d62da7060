"""Limits for gradients before they are applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any) -> Any:
    """A tensor with every element between two limits.

    Args:
        t: A tensor, or an array.
        clip_value_min: The lower limit, a number or what broadcasts to `t`.
        clip_value_max: The upper limit, likewise.

    Returns:
        Of the shape and dtype of `t`.

    Example:

    >>> keras.clip_by_value(np.array([-3.0, 0.5]), -1.0, 1.0).numpy().tolist()
    [-1.0, 0.5]
    """
    return ops.clip(t, clip_value_min, clip_value_max)


def clip_by_norm(t: Any, clip_norm: Any) -> Any:
    """A tensor shortened to a length of `clip_norm` where it is longer; of the same shape.

    Args:
        t: A tensor, such as the gradient of one weight; its length is that of a vector of all of
            its elements.
        clip_norm: A positive number.

    Returns:
        Of the shape and dtype of `t`.

    Example:

    >>> keras.clip_by_norm(np.array([3.0, 4.0]), 1.0).numpy().round(6).tolist()
    [0.6, 0.8]
    """
    return t * (clip_norm / ops.maximum(ops.norm(t), clip_norm))


def global_norm(t_list: Sequence[Any]) -> Any:
    """The length of all tensors taken as one vector, float32 of shape (); None counts as 0.

    Args:
        t_list: Tensors of any shapes, or None in places.

    Returns:
        A float32 tensor of shape ().

    Raises:
        ValueError: where there is no tensor.

    Example:

    >>> float(keras.global_norm([np.array([3.0]), None, np.array([4.0])]))
    5.0
    """
    squares = [ops.sum(ops.square(ops.cast(t, "float32"))) for t in t_list if t is not None]
    if not squares:
        raise ValueError(f"global_norm: there is no tensor to measure. Received: {list(t_list)!r}")
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    return ops.sqrt(total)


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None
) -> tuple[list[Any], Any]:
    """Scales all tensors alike if together they are longer than `clip_norm`.

    Where any element is NaN or infinite they all become NaN: a direction cannot be told then.
    Source: Pascanu et al., "On the difficulty of training recurrent neural networks", 2013.

    Args:
        t_list: Tensors, or None in places, such as what a tape gives.
        clip_norm: A positive number.
        use_norm: The length of all of them, where it is known.

    Returns:
        The tensors, and their length before.

    Example:

    >>> parts, length = keras.clip_by_global_norm([np.array([3.0]), np.array([4.0])], 1.0)
    >>> float(length), [round(float(part[0]), 6) for part in parts]
    (5.0, [0.6, 0.8])
    """
    length = global_norm(t_list) if use_norm is None else use_norm
    scale = clip_norm * ops.minimum(1.0 / length, 1.0 / clip_norm) + (length - length)
    return [None if t is None else t * ops.cast(scale, _dtype_of(t)) for t in t_list], length


def _dtype_of(t: Any) -> Any:
    return ops.convert_to_tensor(t).dtype
