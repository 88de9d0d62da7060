"""Hinge losses: margins of classifiers with outputs around 0."""

from typing import Any

from kerascnn import ops
from kerascnn.losses.function_losses import NamedLoss


def _signs(y_true: Any) -> Any:
    """Maps targets of 0 and 1 to -1 and 1. If there are other values, all stay unchanged."""
    is_binary = ops.all(ops.logical_or(ops.equal(y_true, 0), ops.equal(y_true, 1)))
    return ops.where(is_binary, 2.0 * y_true - 1.0, y_true)


def _margins(y_true: Any, y_pred: Any) -> Any:
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = _signs(ops.cast(y_true, str(y_pred.dtype)))
    return ops.maximum(1.0 - y_true * y_pred, 0.0)


def hinge(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last axis of max(1 - target · prediction, 0).

    Args:
        y_true: -1 or 1, shape `(batch_size, ..., d)`. Where all are 0 or 1, 0 stands for -1.
        y_pred: predictions of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.hinge([[-1.0, 1.0]], [[-2.0, 0.5]]).numpy()
    array([0.25], dtype=float32)
    """
    return ops.mean(_margins(y_true, y_pred), axis=-1)


def squared_hinge(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last axis of max(1 - target · prediction, 0)².

    Args:
        y_true: -1 or 1, shape `(batch_size, ..., d)`. Where all are 0 or 1, 0 stands for -1.
        y_pred: predictions of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.squared_hinge([[-1.0, 1.0]], [[-2.0, 0.5]]).numpy()
    array([0.125], dtype=float32)
    """
    return ops.mean(ops.square(_margins(y_true, y_pred)), axis=-1)


def categorical_hinge(y_true: Any, y_pred: Any) -> Any:
    """max(1 + the largest score of a wrong class - the score of the right class, 0).

    Args:
        y_true: one-hot targets, shape `(batch_size, ..., num_classes)`.
        y_pred: scores of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.categorical_hinge([[0, 1]], [[0.5, 0.75]]).numpy()
    array([0.75], dtype=float32)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, str(y_pred.dtype))
    right = ops.sum(y_true * y_pred, axis=-1)
    wrong = ops.max((1.0 - y_true) * y_pred, axis=-1)
    return ops.maximum(wrong - right + 1.0, 0.0)


class Hinge(NamedLoss):
    """The mean of max(1 - target · prediction, 0), targets being -1 or 1 (or 0 or 1).

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.Hinge()
    >>> float(loss(np.array([[-1.0, 1.0]]), np.array([[-2.0, 0.5]])))
    0.25
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "hinge",
        dtype: Any = None,
    ):
        super().__init__(hinge, reduction=reduction, name=name, dtype=dtype)


class SquaredHinge(NamedLoss):
    """The mean of max(1 - target · prediction, 0)², targets being -1 or 1 (or 0 or 1).

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.SquaredHinge()
    >>> float(loss(np.array([[-1.0, 1.0]]), np.array([[-2.0, 0.5]])))
    0.125
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "squared_hinge",
        dtype: Any = None,
    ):
        super().__init__(squared_hinge, reduction=reduction, name=name, dtype=dtype)


class CategoricalHinge(NamedLoss):
    """The margin of the right class over the best wrong one; see `categorical_hinge`.

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.CategoricalHinge()
    >>> float(loss(np.array([[0, 1]]), np.array([[0.5, 0.75]])))
    0.75
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_hinge",
        dtype: Any = None,
    ):
        super().__init__(categorical_hinge, reduction=reduction, name=name, dtype=dtype)
