"""Losses of numbers: squared, absolute, relative, logarithmic errors, Huber, log-cosh, cosine."""

import math
from typing import Any, ClassVar

from kerascnn import config, ops
from kerascnn.losses.function_losses import NamedLoss
from kerascnn.losses.loss import squeeze_or_expand_to_same_rank


def same_type_and_rank(y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Converts targets to the predictions' dtype, and adds or removes a last axis of size 1."""
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, str(y_pred.dtype))
    return squeeze_or_expand_to_same_rank(y_true, y_pred)


def mean_squared_error(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last axis of the squared differences.

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.mean_squared_error([[0.0, 0.0]], [[1.0, 3.0]]).numpy()
    array([5.], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    return ops.mean(ops.square(ops.subtract(y_true, y_pred)), axis=-1)


def mean_absolute_error(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last axis of the absolute differences.

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.mean_absolute_error([[0.0, 0.0]], [[1.0, 3.0]]).numpy()
    array([2.], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    return ops.mean(ops.absolute(y_true - y_pred), axis=-1)


def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last axis of |target - prediction| / |target|, in percent.

    Targets closer to 0 than `keras.config.epsilon()` count as that.

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.mean_absolute_percentage_error([[2.0, 4.0]], [[1.0, 3.0]]).numpy()
    array([37.5], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    size = ops.maximum(ops.absolute(y_true), config.epsilon())
    return 100.0 * ops.mean(ops.absolute((y_true - y_pred) / size), axis=-1)


def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last axis of (log(1 + target) - log(1 + prediction))².

    Numbers below `keras.config.epsilon()` count as that, negative ones as well.

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.mean_squared_logarithmic_error([[1.0]], [[3.0]]).numpy().round(4)
    array([0.4805], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    epsilon = config.epsilon()
    predicted = ops.log(ops.maximum(y_pred, epsilon) + 1.0)
    wanted = ops.log(ops.maximum(y_true, epsilon) + 1.0)
    return ops.mean(ops.square(predicted - wanted), axis=-1)


def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Any:
    """The mean over the last axis of errors that count squared up to `delta`, linearly beyond.

    error²/2 for |error| <= delta, else delta·|error| - delta²/2 (Huber, Robust estimation of a
    location parameter, 1964).

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.
        delta: where the square ends, in the unit of the targets.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.huber([[0.0, 0.0]], [[1.0, 3.0]]).numpy()
    array([1.5], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    error = y_pred - y_true
    size = ops.absolute(error)
    inside = 0.5 * ops.square(error)
    outside = delta * size - 0.5 * delta * delta
    return ops.mean(ops.where(size <= delta, inside, outside), axis=-1)


def log_cosh(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last axis of log(cosh(prediction - target)).

    It is about error²/2 for small errors and |error| - log(2) for large ones.

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.log_cosh([[0.0, 0.0]], [[0.0, 1.0]]).numpy().round(4)
    array([0.2169], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    error = y_pred - y_true
    return ops.mean(error + ops.softplus(-2.0 * error) - math.log(2.0), axis=-1)


def unit_vectors(x: Any, axis: Any) -> Any:
    """Divides `x` by its Euclidean length along `axis`; zeros stay zeros."""
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, config.epsilon() ** 2))


def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """The cosine of the angle between targets and predictions, with its sign reversed.

    -1 is the same direction, 0 a right angle or a vector of zeros, 1 the opposite direction.

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predictions of the same shape.
        axis: the axis of the vectors.

    Returns:
        Values of the shape without `axis`.

    >>> keras.losses.cosine_similarity([[0.0, 1.0]], [[3.0, 4.0]]).numpy().round(4)
    array([-0.8], dtype=float32)
    """
    y_true, y_pred = same_type_and_rank(y_true, y_pred)
    return -ops.sum(unit_vectors(y_true, axis) * unit_vectors(y_pred, axis), axis=axis)


class MeanSquaredError(NamedLoss):
    """The mean of the squared differences between targets and predictions; see `Loss`.

    >>> loss = keras.losses.MeanSquaredError()
    >>> float(loss(np.zeros((2, 1)), np.array([[1.0], [3.0]])))
    5.0
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_squared_error",
        dtype: Any = None,
    ):
        super().__init__(mean_squared_error, reduction=reduction, name=name, dtype=dtype)


class MeanAbsoluteError(NamedLoss):
    """The mean of the absolute differences between targets and predictions.

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.MeanAbsoluteError()
    >>> float(loss(np.zeros((2, 1)), np.array([[1.0], [3.0]])))
    2.0
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_absolute_error",
        dtype: Any = None,
    ):
        super().__init__(mean_absolute_error, reduction=reduction, name=name, dtype=dtype)


class MeanAbsolutePercentageError(NamedLoss):
    """The mean of the differences relative to the targets, in percent.

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.MeanAbsolutePercentageError()
    >>> float(loss(np.array([[2.0], [4.0]]), np.array([[1.0], [3.0]])))
    37.5
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_absolute_percentage_error",
        dtype: Any = None,
    ):
        super().__init__(
            mean_absolute_percentage_error,
            reduction=reduction,
            name=name,
            dtype=dtype,
        )


class MeanSquaredLogarithmicError(NamedLoss):
    """The mean of the squared differences of log(1 + x).

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.MeanSquaredLogarithmicError()
    >>> round(float(loss(np.array([[1.0]]), np.array([[3.0]]))), 4)
    0.4805
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_squared_logarithmic_error",
        dtype: Any = None,
    ):
        super().__init__(
            mean_squared_logarithmic_error,
            reduction=reduction,
            name=name,
            dtype=dtype,
        )


class CosineSimilarity(NamedLoss):
    """The mean cosine between targets and predictions, negative: -1 is the same direction.

    Args:
        axis: the axis of the vectors.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.CosineSimilarity()
    >>> round(float(loss(np.array([[0.0, 1.0]]), np.array([[3.0, 4.0]]))), 4)
    -0.8
    """

    _left_out: ClassVar[dict[str, Any]] = {"axis": -1}

    def __init__(
        self,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cosine_similarity",
        dtype: Any = None,
    ):
        super().__init__(cosine_similarity, reduction=reduction, name=name, dtype=dtype, axis=axis)


class Huber(NamedLoss):
    """The mean of errors that count squared up to `delta`, linearly beyond; see `huber`.

    Args:
        delta: where the square ends, in the unit of the targets.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.Huber()
    >>> float(loss(np.zeros((1, 2)), np.array([[1.0, 3.0]])))
    1.5
    """

    _left_out: ClassVar[dict[str, Any]] = {"delta": 1.0}

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "huber_loss",
        dtype: Any = None,
    ):
        super().__init__(huber, reduction=reduction, name=name, dtype=dtype, delta=delta)


class LogCosh(NamedLoss):
    """The mean of log(cosh(prediction - target)).

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.LogCosh()
    >>> round(float(loss(np.zeros((1, 2)), np.array([[0.0, 1.0]]))), 4)
    0.2169
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "log_cosh",
        dtype: Any = None,
    ):
        super().__init__(log_cosh, reduction=reduction, name=name, dtype=dtype)
