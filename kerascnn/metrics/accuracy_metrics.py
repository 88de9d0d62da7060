"""How often predictions are right."""

from typing import Any, ClassVar

import numpy as np

from kerascnn import config, ops
from kerascnn.losses.loss import squeeze_or_expand_to_same_rank
from kerascnn.metrics.reduction_metrics import NamedMeanMetric

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where a prediction equals its target, else 0; the shape of the predictions."""
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, str(y_pred.dtype))
    y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
    return ops.cast(ops.equal(y_true, y_pred), config.floatx())


def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Any:
    """1 where a prediction is on its target's side of `threshold`, else 0.

    Args:
        y_true: targets, 0 or 1, in the shape of `y_pred`, or without or with a last axis of extent
            1.
        y_pred: predictions of any shape.
        threshold: predictions above it count as 1.

    Returns:
        A tensor of that shape in `floatx`.

    >>> keras.metrics.binary_accuracy([1, 0, 1], np.array([0.9, 0.2, 0.4])).numpy().tolist()
    [1.0, 1.0, 0.0]
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.convert_to_tensor(y_true)
    y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
    y_pred = ops.cast(ops.greater(y_pred, threshold), str(y_true.dtype))
    return ops.cast(ops.equal(y_true, y_pred), config.floatx())


def categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where the largest prediction is at the one-hot target's place, else 0.

    Args:
        y_true: targets of shape `(batch_size, ..., num_classes)`.
        y_pred: predictions of the same shape.

    Returns:
        A tensor of shape `(batch_size, ...)` in `floatx`.

    >>> y_pred = np.array([[0.1, 0.9, 0.8], [0.05, 0.0, 0.95]])
    >>> keras.metrics.categorical_accuracy(np.eye(3)[[2, 2]], y_pred).numpy().tolist()
    [0.0, 1.0]
    """
    y_true = ops.argmax(ops.convert_to_tensor(y_true), axis=-1)
    y_pred = ops.argmax(ops.convert_to_tensor(y_pred), axis=-1)
    return ops.cast(ops.equal(y_true, y_pred), config.floatx())


def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where the largest prediction is at the label, else 0.

    Args:
        y_true: labels of shape `(batch_size, ...)`, or with a last axis of extent 1.
        y_pred: predictions of shape `(batch_size, ..., num_classes)`.

    Returns:
        A tensor of shape `(batch_size, ...)` in `floatx`.

    >>> y_pred = np.array([[0.1, 0.9, 0.8], [0.05, 0.0, 0.95]])
    >>> keras.metrics.sparse_categorical_accuracy([2, 2], y_pred).numpy().tolist()
    [0.0, 1.0]
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.convert_to_tensor(y_true)
    if len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == 1:
        y_true = ops.squeeze(y_true, axis=-1)
    predicted = ops.argmax(y_pred, axis=-1)
    if str(y_true.dtype) != str(predicted.dtype):
        # Fractions equal no class, so they are compared as floats.
        if str(y_true.dtype) in _FLOATS:
            predicted = ops.cast(predicted, str(y_true.dtype))
        else:
            y_true = ops.cast(y_true, str(predicted.dtype))
    matches = ops.cast(ops.equal(y_true, predicted), config.floatx())
    if len(matches.shape) > 1 and matches.shape[-1] == 1:
        matches = ops.squeeze(matches, axis=-1)
    return matches


def _is_in_top_k(labels: Any, scores: Any, k: int) -> Any:
    """Tells whether less than `k` scores are larger than that of the label; equal ones don't count.

    No sorting: one comparison of each score. False for a label that there is not.
    """
    hit = ops.one_hot(labels, scores.shape[-1], dtype="bool")
    own = ops.max(ops.where(hit, scores, -np.inf), axis=-1, keepdims=True)
    larger = ops.sum(ops.cast(scores > own, config.floatx()), axis=-1)
    return ops.logical_and(larger < float(k), ops.any(hit, axis=-1))


def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Any:
    """1 where the one-hot target's place is among the `k` largest predictions, else 0.

    Args:
        y_true: targets of shape `(batch_size, ..., num_classes)`.
        y_pred: predictions of the same shape.
        k: how many predictions count.

    Returns:
        A tensor of shape `(batch_size, ...)` in `floatx`.

    >>> y_true, y_pred = np.eye(3)[[2, 1]], np.array([[0.1, 0.9, 0.8], [0.05, 0.0, 0.95]])
    >>> keras.metrics.top_k_categorical_accuracy(y_true, y_pred, k=2).numpy()
    array([1., 0.], dtype=float32)
    """
    labels = ops.argmax(ops.convert_to_tensor(y_true), axis=-1)
    return sparse_top_k_categorical_accuracy(labels, y_pred, k=k)


def sparse_top_k_categorical_accuracy(
    y_true: Any, y_pred: Any, k: int = 5, from_sorted_ids: bool = False
) -> Any:
    """1 where the label is among the `k` largest predictions, else 0.

    Args:
        y_true: labels of shape `(batch_size, ...)`.
        y_pred: predictions of shape `(batch_size, ..., num_classes)`.
        k: how many predictions count.
        from_sorted_ids: whether predictions are class numbers instead of scores, the best first.

    Returns:
        A tensor of the shape of the labels in `floatx`.

    >>> y_pred = np.array([[0.1, 0.9, 0.8], [0.05, 0.0, 0.95]])
    >>> keras.metrics.sparse_top_k_categorical_accuracy([2, 1], y_pred, k=2).numpy()
    array([1., 0.], dtype=float32)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, str(y_pred.dtype) if from_sorted_ids else "int32")
    shape = tuple(y_true.shape)
    if len(y_pred.shape) > 2:
        y_pred = ops.reshape(y_pred, (-1, y_pred.shape[-1]))
    labels = ops.reshape(y_true, (-1,))
    if from_sorted_ids:
        matches = ops.any(ops.equal(ops.expand_dims(labels, 1), y_pred[:, :k]), axis=1)
    else:
        matches = _is_in_top_k(labels, y_pred, k)
    return ops.reshape(ops.cast(matches, config.floatx()), shape)


class _Accuracy(NamedMeanMetric):
    _direction = "up"


class Accuracy(_Accuracy):
    """How often predictions equal targets.

    >>> metric = keras.metrics.Accuracy()
    >>> metric.update_state(np.array([1, 2, 3, 4]), np.array([0, 2, 3, 4]))
    >>> float(metric.result())
    0.75
    """

    def __init__(self, name: str | None = "accuracy", dtype: Any = None):
        super().__init__(accuracy, name=name, dtype=dtype)


class BinaryAccuracy(_Accuracy):
    """How often predictions are on their targets' side of `threshold`.

    Args:
        threshold: larger predictions count as 1, others as 0.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.BinaryAccuracy()
    >>> metric.update_state(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.98, 1.0, 0.0, 0.6]))
    >>> float(metric.result())
    0.75
    """

    def __init__(
        self, name: str | None = "binary_accuracy", dtype: Any = None, threshold: float = 0.5
    ):
        super().__init__(binary_accuracy, name=name, dtype=dtype, threshold=threshold)


class CategoricalAccuracy(_Accuracy):
    """How often the largest prediction is at the place of the one-hot target.

    >>> metric = keras.metrics.CategoricalAccuracy()
    >>> metric.update_state(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.1, 0.9], [0.4, 0.6]]))
    >>> float(metric.result())
    0.5
    """

    def __init__(self, name: str | None = "categorical_accuracy", dtype: Any = None):
        super().__init__(categorical_accuracy, name=name, dtype=dtype)


class SparseCategoricalAccuracy(_Accuracy):
    """How often the largest prediction is at the place of the integer label.

    >>> metric = keras.metrics.SparseCategoricalAccuracy()
    >>> metric.update_state(np.array([1, 0]), np.array([[0.1, 0.9], [0.4, 0.6]]))
    >>> float(metric.result())
    0.5
    """

    def __init__(self, name: str | None = "sparse_categorical_accuracy", dtype: Any = None):
        super().__init__(sparse_categorical_accuracy, name=name, dtype=dtype)


class TopKCategoricalAccuracy(_Accuracy):
    """How often the one-hot target's place is among the `k` largest predictions.

    Args:
        k: how many predictions count.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.TopKCategoricalAccuracy(k=2)
    >>> metric.update_state(np.eye(3)[[2, 1]], np.array([[0.1, 0.9, 0.8], [0.05, 0.0, 0.95]]))
    >>> float(metric.result())
    0.5
    """

    def __init__(
        self, k: int = 5, name: str | None = "top_k_categorical_accuracy", dtype: Any = None
    ):
        super().__init__(top_k_categorical_accuracy, name=name, dtype=dtype, k=k)


class SparseTopKCategoricalAccuracy(_Accuracy):
    """How often the integer label is among the `k` largest predictions.

    Args:
        k: how many predictions count.
        name: see `Metric`.
        dtype: see `Metric`.
        from_sorted_ids: whether predictions are class numbers, the best first, instead of scores.

    >>> metric = keras.metrics.SparseTopKCategoricalAccuracy(k=2)
    >>> metric.update_state([2, 1], np.array([[0.1, 0.9, 0.8], [0.05, 0.0, 0.95]]))
    >>> float(metric.result())
    0.5
    """

    _left_out: ClassVar[dict[str, Any]] = {"from_sorted_ids": False}

    def __init__(
        self,
        k: int = 5,
        name: str | None = "sparse_top_k_categorical_accuracy",
        dtype: Any = None,
        from_sorted_ids: bool = False,
    ):
        super().__init__(
            sparse_top_k_categorical_accuracy,
            name=name,
            dtype=dtype,
            k=k,
            from_sorted_ids=from_sorted_ids,
        )
