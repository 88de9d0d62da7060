"""Metrics of numbers that are not plain means of a loss, and the share of explained variance."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from kerascnn import ops, tracing
from kerascnn.losses.loss import squeeze_or_expand_to_same_rank
from kerascnn.losses.regression import cosine_similarity
from kerascnn.metrics.metric import Metric
from kerascnn.metrics.reduction_metrics import Mean, NamedMeanMetric


class RootMeanSquaredError(Mean):
    """The root of the mean of the squared differences between targets and predictions.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.RootMeanSquaredError()
    >>> metric.update_state([[0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]])
    >>> float(metric.result())
    0.5
    """

    _direction = "down"

    def __init__(self, name: str | None = "root_mean_squared_error", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        y_true = ops.convert_to_tensor(y_true, dtype=self.dtype)
        y_pred = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
        super().update_state(ops.square(y_pred - y_true), sample_weight=sample_weight)

    def result(self) -> Any:
        return ops.sqrt(super().result())

    def result_on_host(self, state: Sequence[Any] | None = None) -> float:
        return math.sqrt(super().result_on_host(state))


def _cosine(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    return -cosine_similarity(y_true, y_pred, axis=axis)


class CosineSimilarity(NamedMeanMetric):
    """The mean cosine of the angle between targets and predictions: 1 is the same direction.

    Args:
        name: see `Metric`.
        dtype: see `Metric`.
        axis: the axis of the vectors.

    >>> metric = keras.metrics.CosineSimilarity()
    >>> metric.update_state([[0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]])
    >>> round(float(metric.result()), 4)
    0.5
    """

    _direction = "up"
    _left_out: ClassVar[dict[str, Any]] = {"axis": -1}

    def __init__(
        self, name: str | None = "cosine_similarity", dtype: Any = None, axis: int = -1
    ) -> None:
        super().__init__(_cosine, name=name, dtype=dtype, axis=axis)


class R2Score(Metric):
    """The coefficient of determination: 1 - squared errors / squared distances from the mean.

    1 is perfect, 0 as good as always predicting the mean of the targets.

    Args:
        class_aggregation: `"uniform_average"` for the mean over outputs,
            `"variance_weighted_average"` for the mean with their variances as weights, `None` for a
            score for each output.
        num_regressors: how many inputs the model has, for the adjusted score; 0 for the plain one.
        name: see `Metric`.
        dtype: see `Metric`.

    Raises:
        ValueError: for an argument out of its range, and for data that does not have the shape
            `(batch_size, outputs)`.

    >>> metric = keras.metrics.R2Score()
    >>> metric.update_state(np.array([[1.0], [4.0], [3.0]]), np.array([[2.0], [4.0], [4.0]]))
    >>> round(float(metric.result()), 4)
    0.5714
    """

    _direction = "up"

    def __init__(
        self,
        class_aggregation: str | None = "uniform_average",
        num_regressors: int = 0,
        name: str | None = "r2_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        choices = (None, "uniform_average", "variance_weighted_average")
        if class_aggregation not in choices:
            raise ValueError(
                f"`class_aggregation` must be one of {choices}. Received: "
                f"class_aggregation={class_aggregation!r}"
            )
        if num_regressors < 0:
            raise ValueError(
                f"`num_regressors` must not be negative. Received: num_regressors={num_regressors}"
            )
        self.class_aggregation = class_aggregation
        self.num_regressors = num_regressors
        self.num_samples = self.add_variable((), "zeros", name="num_samples")
        self._built = False

    def _build(self, y_true_shape: tuple, y_pred_shape: tuple) -> None:
        if len(y_pred_shape) != 2 or len(y_true_shape) != 2:
            raise ValueError(
                "R2Score needs targets and predictions of shape (batch_size, outputs). Received: "
                f"y_true.shape={y_true_shape}, y_pred.shape={y_pred_shape}"
            )
        shape = (y_pred_shape[-1],)
        self.squared_sum = self.add_variable(shape, "zeros", name="squared_sum")
        self.sum = self.add_variable(shape, "zeros", name="sum")
        self.total_mse = self.add_variable(shape, "zeros", name="residual")
        self.count = self.add_variable(shape, "zeros", name="count")
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_true = ops.convert_to_tensor(y_true, dtype=self.dtype)
        y_pred = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
        if not self._built:
            self._build(tuple(y_true.shape), tuple(y_pred.shape))
        weights = ops.ones_like(y_true)
        if sample_weight is not None:
            weights = ops.convert_to_tensor(sample_weight, dtype=self.dtype)
            if len(weights.shape) == 1:
                weights = ops.expand_dims(weights, axis=1)
            weights = ops.broadcast_to(weights, tuple(y_true.shape))
        weighted = y_true * weights
        self.sum.assign_add(ops.sum(weighted, axis=0))
        self.squared_sum.assign_add(ops.sum(y_true * weighted, axis=0))
        self.total_mse.assign_add(ops.sum(ops.square(y_true - y_pred) * weights, axis=0))
        self.count.assign_add(ops.sum(weights, axis=0))
        self.num_samples.assign_add(float(ops.size(y_true)))

    def result(self) -> Any:
        if not self._built:
            return ops.zeros(())
        total = self.squared_sum.value - self.sum.value * (self.sum.value / self.count.value)
        scores = 1.0 - self.total_mse.value / total
        scores = ops.where(ops.isinf(scores), 0.0, scores)
        if self.class_aggregation == "uniform_average":
            scores = ops.mean(scores)
        elif self.class_aggregation == "variance_weighted_average":
            scores = ops.sum(total * scores) / ops.sum(total)
        return self._adjusted(scores) if self.num_regressors else scores

    def _adjusted(self, scores: Any) -> Any:
        """Reduces the score for each input, unless there are not more samples than inputs."""
        if tracing.current() is None:
            samples = float(self.num_samples.numpy())
            if self.num_regressors >= samples - 1:
                warnings.warn(
                    f"The adjusted R2 score needs more than {self.num_regressors + 1} samples for "
                    f"{self.num_regressors} inputs; there were {samples:.0f}. The result is the "
                    "plain R2 score.",
                    stacklevel=3,
                )
        freedom = self.num_samples.value - 1.0 - float(self.num_regressors)
        enough = freedom > 0.0
        divisor = ops.where(enough, freedom, ops.ones_like(freedom))
        adjusted = 1.0 - (1.0 - scores) * (self.num_samples.value - 1.0) / divisor
        return ops.where(enough, adjusted, scores)

    def get_config(self) -> dict:
        own = {"class_aggregation": self.class_aggregation, "num_regressors": self.num_regressors}
        return {**super().get_config(), **own}
