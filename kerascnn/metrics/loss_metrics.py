"""Losses as metrics: the mean over all samples since the last reset."""

from kerascnn.losses.losses import (
    binary_crossentropy,
    categorical_crossentropy,
    mean_squared_error,
    sparse_categorical_crossentropy,
)
from kerascnn.metrics.reduction_metrics import MeanMetricWrapper


class _LossMetric(MeanMetricWrapper):
    _direction = "down"


class MeanSquaredError(_LossMetric):
    """The mean of the squared differences between targets and predictions.

    >>> metric = keras.metrics.MeanSquaredError()
    >>> metric.update_state(np.zeros((2, 1), "float32"), np.array([[1.0], [3.0]], "float32"))
    >>> float(metric.result())
    5.0
    """

    def __init__(self, name: str = "mean_squared_error", dtype: str | None = None):
        super().__init__(mean_squared_error, name=name, dtype=dtype)


class BinaryCrossentropy(_LossMetric):
    """The mean cross-entropy of outputs that are each 0 or 1; arguments as of the loss.

    >>> metric = keras.metrics.BinaryCrossentropy()
    >>> metric.update_state(np.array([[1.0]], "float32"), np.array([[0.8]], "float32"))
    >>> round(float(metric.result()), 4)
    0.2231
    """

    def __init__(
        self,
        name: str = "binary_crossentropy",
        dtype: str | None = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
    ):
        super().__init__(
            binary_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
        )


class CategoricalCrossentropy(_LossMetric):
    """The mean cross-entropy for one-hot targets; arguments as of the loss.

    >>> metric = keras.metrics.CategoricalCrossentropy()
    >>> metric.update_state(np.array([[0.0, 1.0]], "float32"), np.array([[0.2, 0.8]], "float32"))
    >>> round(float(metric.result()), 4)
    0.2231
    """

    def __init__(
        self,
        name: str = "categorical_crossentropy",
        dtype: str | None = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
        axis: int = -1,
    ):
        super().__init__(
            categorical_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class SparseCategoricalCrossentropy(_LossMetric):
    """The mean cross-entropy for integer labels; arguments as of the loss.

    >>> metric = keras.metrics.SparseCategoricalCrossentropy()
    >>> metric.update_state(np.array([1]), np.array([[0.2, 0.8]], "float32"))
    >>> round(float(metric.result()), 4)
    0.2231
    """

    def __init__(
        self,
        name: str = "sparse_categorical_crossentropy",
        dtype: str | None = None,
        from_logits: bool = False,
        axis: int = -1,
    ):
        super().__init__(
            sparse_categorical_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            axis=axis,
        )
