"""How often predictions are right."""

from typing import Any

from kerascnn import config, ops
from kerascnn.losses.loss import squeeze_or_expand_to_same_rank
from kerascnn.metrics.reduction_metrics import MeanMetricWrapper

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where a prediction equals its target, else 0; the shape of the predictions."""
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, str(y_pred.dtype))
    y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
    return ops.cast(ops.equal(y_true, y_pred), config.floatx())


def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Any:
    """1 where a prediction is on its target's side of `threshold`, else 0."""
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.convert_to_tensor(y_true)
    y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
    y_pred = ops.cast(ops.greater(y_pred, threshold), str(y_true.dtype))
    return ops.cast(ops.equal(y_true, y_pred), config.floatx())


def categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where the largest prediction is at the one-hot target's place, else 0.

    Shapes `(batch_size, ..., num_classes)` give values of shape `(batch_size, ...)`.
    """
    y_true = ops.argmax(ops.convert_to_tensor(y_true), axis=-1)
    y_pred = ops.argmax(ops.convert_to_tensor(y_pred), axis=-1)
    return ops.cast(ops.equal(y_true, y_pred), config.floatx())


def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where the largest prediction is at the label, else 0.

    Labels of shape `(batch_size, ...)`, or with a last axis of extent 1, and predictions of shape
    `(batch_size, ..., num_classes)` give values of shape `(batch_size, ...)`.
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


class _Accuracy(MeanMetricWrapper):
    _direction = "up"


class Accuracy(_Accuracy):
    """How often predictions equal targets.

    >>> metric = keras.metrics.Accuracy()
    >>> metric.update_state(np.array([1, 2, 3, 4]), np.array([0, 2, 3, 4]))
    >>> float(metric.result())
    0.75
    """

    def __init__(self, name: str = "accuracy", dtype: str | None = None):
        super().__init__(accuracy, name=name, dtype=dtype)


class BinaryAccuracy(_Accuracy):
    """How often predictions are on their targets' side of `threshold`.

    >>> metric = keras.metrics.BinaryAccuracy()
    >>> metric.update_state(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.98, 1.0, 0.0, 0.6]))
    >>> float(metric.result())
    0.75
    """

    def __init__(
        self, name: str = "binary_accuracy", dtype: str | None = None, threshold: float = 0.5
    ):
        super().__init__(binary_accuracy, name=name, dtype=dtype, threshold=threshold)
        self.threshold = threshold


class CategoricalAccuracy(_Accuracy):
    """How often the largest prediction is at the place of the one-hot target.

    >>> metric = keras.metrics.CategoricalAccuracy()
    >>> metric.update_state(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.1, 0.9], [0.4, 0.6]]))
    >>> float(metric.result())
    0.5
    """

    def __init__(self, name: str = "categorical_accuracy", dtype: str | None = None):
        super().__init__(categorical_accuracy, name=name, dtype=dtype)


class SparseCategoricalAccuracy(_Accuracy):
    """How often the largest prediction is at the place of the integer label.

    >>> metric = keras.metrics.SparseCategoricalAccuracy()
    >>> metric.update_state(np.array([1, 0]), np.array([[0.1, 0.9], [0.4, 0.6]]))
    >>> float(metric.result())
    0.5
    """

    def __init__(self, name: str = "sparse_categorical_accuracy", dtype: str | None = None):
        super().__init__(sparse_categorical_accuracy, name=name, dtype=dtype)
