"""Gradients held within limits before they are applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops


def clip_by_norm(gradient: Any, limit: float) -> Any:
    """The gradient, shortened to a length of `limit` where it is longer; of the same shape."""
    return gradient * (limit / ops.maximum(ops.norm(gradient), limit))


def clip_by_value(gradient: Any, limit: float) -> Any:
    """The gradient with every element between -limit and limit."""
    return ops.clip(gradient, -limit, limit)


def global_norm(gradients: Sequence[Any]) -> Any:
    """The length of all gradients taken as one vector, shape ()."""
    squares = [ops.sum(ops.square(ops.cast(g, "float32"))) for g in gradients if g is not None]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    return ops.sqrt(total)


def clip_by_global_norm(gradients: Sequence[Any], limit: float) -> list[Any]:
    """The gradients, all shortened alike where together they are longer than `limit`.

    Where any element is NaN or infinite they all become NaN: a direction cannot be told then.
    """
    length = global_norm(gradients)
    scale = limit * ops.minimum(1.0 / length, 1.0 / limit) + (length - length)
    return [None if g is None else g * ops.cast(scale, g.dtype) for g in gradients]
