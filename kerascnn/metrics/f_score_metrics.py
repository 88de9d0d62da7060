"""F-scores: precision and recall in one number."""

from typing import Any

from kerascnn import config, ops
from kerascnn.metrics.metric import Metric

_STATE = ("true_positives", "false_positives", "false_negatives", "intermediate_weights")


class FBetaScore(Metric):
    """(1 + beta²) · precision · recall / (beta² · precision + recall), for each class or together.

    Args:
        average: `None` for a score for each class, `"micro"` for one of all decisions together,
            `"macro"` for the mean of the classes, `"weighted"` for the mean with the classes'
            shares of the targets as weights.
        beta: how many times recall weighs what precision does.
        threshold: what is above is predicted as positive; `None` for the largest score of each
            sample alone.
        name: see `Metric`.
        dtype: see `Metric`.

    Raises:
        ValueError: for an argument out of its range, and for data that does not have the shape
            `(batch_size, num_classes)`.

    >>> metric = keras.metrics.FBetaScore(beta=2.0, threshold=0.5)
    >>> y_true = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0]], "int32")
    >>> y_pred = np.array([[0.2, 0.6, 0.7], [0.2, 0.6, 0.6], [0.6, 0.8, 0.0]], "float32")
    >>> metric.update_state(y_true, y_pred)
    >>> metric.result().numpy().round(4)
    array([0.3846, 0.9091, 0.8333], dtype=float32)
    """

    _direction = "up"

    def __init__(
        self,
        average: str | None = None,
        beta: float = 1.0,
        threshold: float | None = None,
        name: str | None = "fbeta_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if average not in (None, "micro", "macro", "weighted"):
            raise ValueError(
                "`average` must be None, 'micro', 'macro' or 'weighted'. Received: "
                f"average={average!r}"
            )
        if not isinstance(beta, float) or beta <= 0.0:
            raise ValueError(
                f"`beta` must be a float above 0. Received: beta={beta!r} of type "
                f"{type(beta).__name__}"
            )
        if threshold is not None and (not isinstance(threshold, float) or not 0 < threshold <= 1):
            raise ValueError(
                "`threshold` must be None or a float above 0 and up to 1. Received: "
                f"threshold={threshold!r} of type {type(threshold).__name__}"
            )
        self.average = average
        self.beta = beta
        self.threshold = threshold
        self._axis = None if average == "micro" else 0
        self._built = False

    def _build(self, y_true_shape: tuple, y_pred_shape: tuple) -> None:
        if len(y_pred_shape) != 2 or len(y_true_shape) != 2:
            raise ValueError(
                f"{type(self).__name__} needs targets and predictions of shape (batch_size, "
                f"num_classes). Received: y_true.shape={y_true_shape}, y_pred.shape={y_pred_shape}"
            )
        shape = () if self._axis is None else (y_pred_shape[-1],)
        for name in _STATE:
            setattr(self, name, self.add_variable(shape, "zeros", dtype=self.dtype, name=name))
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_true = ops.convert_to_tensor(y_true, dtype=self.dtype)
        y_pred = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        if not self._built:
            self._build(tuple(y_true.shape), tuple(y_pred.shape))
        if self.threshold is None:
            is_largest = y_pred >= ops.max(y_pred, axis=-1, keepdims=True)
            positive = ops.logical_and(is_largest, ops.absolute(y_pred) > 1e-9)
        else:
            positive = y_pred > self.threshold
        positive = ops.cast(positive, self.dtype)
        values = (
            positive * y_true,
            positive * (1.0 - y_true),
            (1.0 - positive) * y_true,
            y_true,
        )
        if sample_weight is not None:
            weights = ops.expand_dims(ops.convert_to_tensor(sample_weight, dtype=self.dtype), 1)
            values = tuple(ops.multiply(value, weights) for value in values)
        for name, value in zip(_STATE, values, strict=True):
            getattr(self, name).assign_add(ops.sum(value, axis=self._axis))

    def result(self) -> Any:
        if not self._built:
            return ops.zeros(())
        tp, fp, fn, weights = (getattr(self, name).value for name in _STATE)
        epsilon = config.epsilon()
        precision, recall = tp / (tp + fp + epsilon), tp / (tp + fn + epsilon)
        square = self.beta**2
        scores = precision * recall / (square * precision + recall + epsilon) * (1 + square)
        if self.average == "weighted":
            return ops.sum(scores * (weights / (ops.sum(weights) + epsilon)))
        return scores if self.average is None else ops.mean(scores)

    def get_config(self) -> dict:
        own = {"average": self.average, "beta": self.beta, "threshold": self.threshold}
        return {**super().get_config(), **own}


class F1Score(FBetaScore):
    """The harmonic mean of precision and recall; `FBetaScore` with `beta=1`.

    Args:
        average: see `FBetaScore`.
        threshold: see `FBetaScore`.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.F1Score(average="macro")
    >>> metric.update_state(np.eye(3)[[0, 1, 2, 2]], np.eye(3)[[0, 1, 1, 2]])
    >>> round(float(metric.result()), 4)
    0.7778
    """

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str | None = "f1_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(average=average, beta=1.0, threshold=threshold, name=name, dtype=dtype)

    def get_config(self) -> dict:
        return {key: value for key, value in super().get_config().items() if key != "beta"}
