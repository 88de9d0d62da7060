"""How well predictions follow targets along an axis."""

from typing import Any

from kerascnn import config, ops
from kerascnn.losses.regression import same_type_and_rank
from kerascnn.metrics.reduction_metrics import NamedMeanMetric


def pearson_correlation(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """The covariance divided by both standard deviations: from -1 to 1.

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.
        axis: the axis that is followed.

    Returns:
        Values of the shape without `axis`; NaN where one of both is constant.

    >>> y_true, y_pred = [[0.0, 1.0, 0.5]], [[0.1, 0.9, 0.5]]
    >>> keras.metrics.pearson_correlation(y_true, y_pred).numpy().round(4)
    array([1.], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    return ops.mean(_standardized(y_true, axis) * _standardized(y_pred, axis), axis=axis)


def _standardized(x: Any, axis: int) -> Any:
    centred = x - ops.mean(x, axis=axis, keepdims=True)
    return centred / ops.std(centred, axis=axis, keepdims=True)


def concordance_correlation(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """Pearson's correlation, less for another mean or spread than that of the targets.

    2 · covariance / (both variances + squared difference of the means) (Lin, A concordance
    correlation coefficient to evaluate reproducibility, 1989).

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.
        axis: the axis that is followed.

    Returns:
        Values of the shape without `axis`.

    >>> y_true, y_pred = [[0.0, 1.0, 0.5]], [[0.0, 0.8, 0.4]]
    >>> keras.metrics.concordance_correlation(y_true, y_pred).numpy().round(4)
    array([0.9412], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    true_mean = ops.mean(y_true, axis=axis, keepdims=True)
    mean = ops.mean(y_pred, axis=axis, keepdims=True)
    spread = ops.var(y_true, axis=axis, keepdims=True) + ops.var(y_pred, axis=axis, keepdims=True)
    total = spread + ops.square(true_mean - mean) + config.epsilon()
    # The targets' mean would do as well: the other factor sums to 0.
    return ops.mean(2.0 * (y_true - mean) * (y_pred - mean) / total, axis=axis)


class PearsonCorrelation(NamedMeanMetric):
    """The mean Pearson correlation of predictions with targets.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.
        axis: the axis that is followed.

    >>> metric = keras.metrics.PearsonCorrelation(axis=-1)
    >>> metric.update_state([[0, 1, 0.5], [1, 1, 0.2]], [[0.1, 0.9, 0.5], [1, 0.9, 0.2]])
    >>> round(float(metric.result()), 4)
    0.9967
    """

    _direction = "up"

    def __init__(
        self, name: str | None = "pearson_correlation", dtype: Any = None, axis: int = -1
    ) -> None:
        super().__init__(pearson_correlation, name=name, dtype=dtype, axis=axis)


class ConcordanceCorrelation(NamedMeanMetric):
    """The mean concordance correlation of predictions with targets.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.
        axis: the axis that is followed.

    >>> metric = keras.metrics.ConcordanceCorrelation(axis=-1)
    >>> metric.update_state([[0, 1, 0.5], [1, 1, 0.2]], [[0.1, 0.9, 0.5], [1, 0.9, 0.2]])
    >>> round(float(metric.result()), 4)
    0.9816
    """

    _direction = "up"

    def __init__(
        self, name: str | None = "concordance_correlation", dtype: Any = None, axis: int = -1
    ) -> None:
        super().__init__(concordance_correlation, name=name, dtype=dtype, axis=axis)
