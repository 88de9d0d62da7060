"""Losses as metrics: the mean over all samples since the last reset."""

from typing import Any

from kerascnn.losses.crossentropy import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from kerascnn.losses.hinges import categorical_hinge, hinge, squared_hinge
from kerascnn.losses.probabilistic import kl_divergence, poisson
from kerascnn.losses.regression import (
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
)
from kerascnn.metrics.reduction_metrics import NamedMeanMetric


class MeanSquaredError(NamedMeanMetric):
    """The mean of the squared differences between targets and predictions.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.MeanSquaredError()
    >>> metric.update_state(np.zeros((2, 1)), np.array([[1.0], [3.0]]))
    >>> round(float(metric.result()), 4)
    5.0
    """

    def __init__(self, name: str | None = "mean_squared_error", dtype: Any = None) -> None:
        super().__init__(mean_squared_error, name=name, dtype=dtype)


class MeanAbsoluteError(NamedMeanMetric):
    """The mean of the absolute differences between targets and predictions.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.MeanAbsoluteError()
    >>> metric.update_state(np.zeros((2, 1)), np.array([[1.0], [3.0]]))
    >>> round(float(metric.result()), 4)
    2.0
    """

    def __init__(self, name: str | None = "mean_absolute_error", dtype: Any = None) -> None:
        super().__init__(mean_absolute_error, name=name, dtype=dtype)


class MeanAbsolutePercentageError(NamedMeanMetric):
    """The mean of the differences relative to the targets, in percent.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.MeanAbsolutePercentageError()
    >>> metric.update_state([[2.0], [4.0]], [[1.0], [3.0]])
    >>> round(float(metric.result()), 4)
    37.5
    """

    def __init__(
        self,
        name: str | None = "mean_absolute_percentage_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(mean_absolute_percentage_error, name=name, dtype=dtype)


class MeanSquaredLogarithmicError(NamedMeanMetric):
    """The mean of the squared differences of log(1 + x).

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.MeanSquaredLogarithmicError()
    >>> metric.update_state([[1.0]], [[3.0]])
    >>> round(float(metric.result()), 4)
    0.4805
    """

    def __init__(
        self,
        name: str | None = "mean_squared_logarithmic_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(mean_squared_logarithmic_error, name=name, dtype=dtype)


class LogCoshError(NamedMeanMetric):
    """The mean of log(cosh(prediction - target)).

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.LogCoshError()
    >>> metric.update_state([[0.0, 0.0]], [[0.0, 1.0]])
    >>> round(float(metric.result()), 4)
    0.2169
    """

    def __init__(self, name: str | None = "logcosh", dtype: Any = None) -> None:
        super().__init__(log_cosh, name=name, dtype=dtype)


class Hinge(NamedMeanMetric):
    """The mean of max(1 - target · prediction, 0), targets being -1 or 1 (or 0 or 1).

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.Hinge()
    >>> metric.update_state([[-1.0, 1.0]], [[-2.0, 0.5]])
    >>> round(float(metric.result()), 4)
    0.25
    """

    def __init__(self, name: str | None = "hinge", dtype: Any = None) -> None:
        super().__init__(hinge, name=name, dtype=dtype)


class SquaredHinge(NamedMeanMetric):
    """The mean of max(1 - target · prediction, 0)², targets being -1 or 1 (or 0 or 1).

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.SquaredHinge()
    >>> metric.update_state([[-1.0, 1.0]], [[-2.0, 0.5]])
    >>> round(float(metric.result()), 4)
    0.125
    """

    def __init__(self, name: str | None = "squared_hinge", dtype: Any = None) -> None:
        super().__init__(squared_hinge, name=name, dtype=dtype)


class CategoricalHinge(NamedMeanMetric):
    """The mean margin of the right class over the best wrong one; see the loss.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.CategoricalHinge()
    >>> metric.update_state([[0, 1]], [[0.5, 0.75]])
    >>> round(float(metric.result()), 4)
    0.75
    """

    def __init__(self, name: str | None = "categorical_hinge", dtype: Any = None) -> None:
        super().__init__(categorical_hinge, name=name, dtype=dtype)


class KLDivergence(NamedMeanMetric):
    """The mean Kullback-Leibler divergence of the predictions from the targets, in nats.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.KLDivergence()
    >>> metric.update_state([[0.5, 0.5]], [[0.25, 0.75]])
    >>> round(float(metric.result()), 4)
    0.1438
    """

    def __init__(self, name: str | None = "kl_divergence", dtype: Any = None) -> None:
        super().__init__(kl_divergence, name=name, dtype=dtype)


class Poisson(NamedMeanMetric):
    """The mean of prediction - target · log(prediction), for counts.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.Poisson()
    >>> metric.update_state([[1.0, 0.0]], [[1.0, 2.0]])
    >>> round(float(metric.result()), 4)
    1.5
    """

    def __init__(self, name: str | None = "poisson", dtype: Any = None) -> None:
        super().__init__(poisson, name=name, dtype=dtype)


class BinaryCrossentropy(NamedMeanMetric):
    """The mean cross-entropy of outputs that are each 0 or 1.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.
        from_logits: whether predictions are logits.
        label_smoothing: between 0 and 1; see the loss.

    >>> metric = keras.metrics.BinaryCrossentropy()
    >>> metric.update_state([[1.0]], [[0.8]])
    >>> round(float(metric.result()), 4)
    0.2231
    """

    def __init__(
        self,
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
    ) -> None:
        super().__init__(
            binary_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
        )


class CategoricalCrossentropy(NamedMeanMetric):
    """The mean cross-entropy for one-hot targets.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.
        from_logits: whether predictions are logits.
        label_smoothing: between 0 and 1; see the loss.
        axis: the axis of the classes.

    >>> metric = keras.metrics.CategoricalCrossentropy()
    >>> metric.update_state([[0.0, 1.0]], [[0.2, 0.8]])
    >>> round(float(metric.result()), 4)
    0.2231
    """

    def __init__(
        self,
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
        axis: int = -1,
    ) -> None:
        super().__init__(
            categorical_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class SparseCategoricalCrossentropy(NamedMeanMetric):
    """The mean cross-entropy for integer labels.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.
        from_logits: whether predictions are logits.
        ignore_class: a label whose samples count as 0, and not at all with sample weights.
        axis: the axis of the classes.

    >>> metric = keras.metrics.SparseCategoricalCrossentropy()
    >>> metric.update_state([1], [[0.2, 0.8]])
    >>> round(float(metric.result()), 4)
    0.2231
    """

    def __init__(
        self,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
    ) -> None:
        super().__init__(
            sparse_categorical_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )
