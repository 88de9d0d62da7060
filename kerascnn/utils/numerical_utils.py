"""Normalization of vectors to length 1."""

from __future__ import annotations

from typing import Any

import numpy as np


def normalize(x: Any, axis: int = -1, order: Any = 2) -> Any:
    """Divides along an axis by the length; vectors of length 0 stay as they are.

    Args:
        x: An array or a tensor.
        axis: Along which the lengths are taken.
        order: Of the norm: 2 for the Euclidean one, 1 for the sum of the absolute values, ...

    Returns:
        An array where `x` is one, else a tensor.

    Example:

    >>> import numpy as np
    >>> from kerascnn.utils import normalize
    >>> normalize(np.array([[3.0, 4.0]])).tolist()
    [[0.6, 0.8]]
    """
    from kerascnn import config, ops
    from kerascnn.ops import dispatch

    if not dispatch.is_tensor(x):
        x = np.asarray(x)
        norm = np.atleast_1d(np.linalg.norm(x, order, axis))
        norm[norm == 0] = 1
        return x / np.expand_dims(norm, axis)
    if order == 2:
        norm = ops.sqrt(ops.sum(ops.square(x), axis, keepdims=True))
    elif order == np.inf:
        norm = ops.max(ops.abs(x), axis, keepdims=True)
    else:
        sums = ops.sum(ops.power(ops.abs(x), float(order)), axis, keepdims=True)
        norm = ops.power(sums, 1.0 / float(order))
    return ops.divide(x, ops.maximum(norm, config.epsilon()))
