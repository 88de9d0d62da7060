"""Losses of probabilities besides the plain cross-entropies: divergence, Poisson, focal."""

from typing import Any

from kerascnn import config, ops
from kerascnn.losses.crossentropy import categorical_targets, smoothed_binary_targets
from kerascnn.losses.function_losses import NamedLoss, takes_labels


def kl_divergence(y_true: Any, y_pred: Any) -> Any:
    """The Kullback-Leibler divergence: sum(target · log(target / prediction)) over the last axis.

    Both are kept between `keras.config.epsilon()` and 1.

    Args:
        y_true: probabilities, shape `(batch_size, ..., d)`.
        y_pred: predicted probabilities of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`, in nats.

    >>> keras.losses.kl_divergence([[0.5, 0.5]], [[0.25, 0.75]]).numpy().round(4)
    array([0.1438], dtype=float32)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.clip(ops.cast(y_true, str(y_pred.dtype)), config.epsilon(), 1.0)
    y_pred = ops.clip(y_pred, config.epsilon(), 1.0)
    return ops.sum(y_true * ops.log(y_true / y_pred), axis=-1)


def poisson(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last axis of prediction - target · log(prediction).

    It is the negative logarithm of a Poisson distribution's probability, but for a term of the
    targets alone.

    Args:
        y_true: counts, shape `(batch_size, ..., d)`.
        y_pred: predicted rates, from 0 on, of the same shape.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.poisson([[1.0, 0.0]], [[1.0, 2.0]]).numpy().round(4)
    array([1.5], dtype=float32)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, str(y_pred.dtype))
    return ops.mean(y_pred - y_true * ops.log(y_pred + config.epsilon()), axis=-1)


def binary_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Binary cross-entropy in which what is already right counts less, averaged over `axis`.

    Each term is weighed by (1 - p)^gamma, p being the probability given to the right answer (Lin et
    al., Focal loss for dense object detection, 2017).

    Args:
        y_true: targets of 0 or 1, shape `(batch_size, ..., d)`.
        y_pred: predicted probabilities of 1, or logits, of the same shape.
        apply_class_balancing: whether ones weigh `alpha` and zeros `1 - alpha`.
        alpha: between 0 and 1.
        gamma: from 0 on; 0 gives the plain cross-entropy.
        from_logits: whether `y_pred` holds logits (before the sigmoid).
        label_smoothing: between 0 and 1; moves targets this far towards 0.5.
        axis: the axis that the mean is taken over.

    Returns:
        Values of shape `(batch_size, ...)`.

    Raises:
        ValueError: where the shapes differ.

    >>> y_pred = [[0.6, 0.4], [0.4, 0.6]]
    >>> keras.losses.binary_focal_crossentropy([[0, 1], [0, 0]], y_pred).numpy().round(3)
    array([0.33 , 0.206], dtype=float32)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = smoothed_binary_targets(y_true, y_pred, label_smoothing)
    if from_logits:
        y_pred = ops.sigmoid(y_pred)
    crossentropy = ops.binary_crossentropy(y_true, y_pred)
    right = y_true * y_pred + (1.0 - y_true) * (1.0 - y_pred)
    values = ops.power(1.0 - right, gamma) * crossentropy
    if apply_class_balancing:
        values = (y_true * alpha + (1.0 - y_true) * (1.0 - alpha)) * values
    return ops.mean(values, axis=axis)


def categorical_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    alpha: Any = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Categorical cross-entropy in which what is already right counts less.

    The term of a class with the predicted probability p is weighed by alpha · (1 - p)^gamma (Lin et
    al., Focal loss for dense object detection, 2017).

    Args:
        y_true: one-hot targets, shape `(batch_size, ..., num_classes)`.
        y_pred: predicted probabilities, or logits, of the same shape.
        alpha: a weight for all classes, or one for each.
        gamma: from 0 on; 0 gives `alpha` times the plain cross-entropy.
        from_logits: whether `y_pred` holds logits (before softmax).
        label_smoothing: between 0 and 1; this share of each target is spread over the classes.
        axis: the axis of the classes.

    Returns:
        Values of shape `(batch_size, ...)`.

    Raises:
        ValueError: where `axis` is a bool.

    >>> y_pred = [[0.05, 0.9, 0.05], [0.1, 0.85, 0.05]]
    >>> keras.losses.categorical_focal_crossentropy([[0, 1, 0], [0, 0, 1]], y_pred).numpy().round(5)
    array([2.6000e-04, 6.7591e-01], dtype=float32)
    """
    y_true, y_pred = categorical_targets(
        "categorical_focal_crossentropy", y_true, y_pred, label_smoothing, axis
    )
    if from_logits:
        y_pred = ops.softmax(y_pred, axis=axis)
    output = y_pred / ops.sum(y_pred, axis=axis, keepdims=True)
    output = ops.clip(output, config.epsilon(), 1.0 - config.epsilon())
    weights = ops.multiply(ops.power(1.0 - output, gamma), alpha)
    return ops.sum(weights * (-y_true * ops.log(output)), axis=axis)


@takes_labels
def categorical_generalized_cross_entropy(y_true: Any, y_pred: Any, q: float) -> Any:
    """(1 - p^q) / q, p being the probability given to the right class.

    It lies between the cross-entropy (q towards 0) and the mean absolute error (q = 1), and
    forgives wrong labels more than the former (Zhang and Sabuncu, Generalized cross entropy loss
    for training deep neural networks with noisy labels, 2018).

    Args:
        y_true: labels from 0 to `num_classes - 1`, shape `(batch_size, ...)`.
        y_pred: predicted probabilities, shape `(batch_size, ..., num_classes)`.
        q: between 0 and 1.

    Returns:
        Values of shape `(batch_size, ...)`.

    >>> keras.losses.categorical_generalized_cross_entropy([1], [[0.75, 0.25]], 0.5).numpy()
    array([1.], dtype=float32)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    targets = ops.one_hot(ops.cast(y_true, "int32"), y_pred.shape[-1], dtype=str(y_pred.dtype))
    right = ops.sum(y_pred * targets, axis=-1)
    return (1.0 - ops.power(right, q)) / q


class KLDivergence(NamedLoss):
    """The mean Kullback-Leibler divergence of the predictions from the targets, in nats.

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.KLDivergence()
    >>> round(float(loss(np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]]))), 4)
    0.1438
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "kl_divergence",
        dtype: Any = None,
    ):
        super().__init__(kl_divergence, reduction=reduction, name=name, dtype=dtype)


class Poisson(NamedLoss):
    """The mean of prediction - target · log(prediction), for counts.

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.Poisson()
    >>> round(float(loss(np.array([[1.0, 0.0]]), np.array([[1.0, 2.0]]))), 4)
    1.5
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "poisson",
        dtype: Any = None,
    ):
        super().__init__(poisson, reduction=reduction, name=name, dtype=dtype)


class BinaryFocalCrossentropy(NamedLoss):
    """Binary cross-entropy in which what is already right counts less.

    Args:
        apply_class_balancing: whether ones weigh `alpha` and zeros `1 - alpha`.
        alpha: between 0 and 1.
        gamma: from 0 on; 0 gives the plain cross-entropy.
        from_logits: whether predictions are logits.
        label_smoothing: between 0 and 1; see the function.
        axis: the axis that the mean is taken over.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.BinaryFocalCrossentropy()
    >>> round(float(loss(np.array([[0.0, 1.0]]), np.array([[0.6, 0.4]]))), 3)
    0.33
    """

    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_focal_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            binary_focal_crossentropy,
            reduction=reduction,
            name=name,
            dtype=dtype,
            apply_class_balancing=apply_class_balancing,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class CategoricalFocalCrossentropy(NamedLoss):
    """Categorical cross-entropy in which what is already right counts less.

    Args:
        alpha: a weight for all classes, or one for each.
        gamma: from 0 on.
        from_logits: whether predictions are logits.
        label_smoothing: between 0 and 1; see the function.
        axis: the axis of the classes.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.CategoricalFocalCrossentropy()
    >>> round(float(loss(np.array([[0.0, 1.0]]), np.array([[0.6, 0.4]]))), 4)
    0.0825
    """

    def __init__(
        self,
        alpha: Any = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_focal_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            categorical_focal_crossentropy,
            reduction=reduction,
            name=name,
            dtype=dtype,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class CategoricalGeneralizedCrossEntropy(NamedLoss):
    """(1 - p^q) / q of the probability p of the right class, for labels that may be wrong.

    Args:
        q: between 0 and 1: towards 0 as the cross-entropy, towards 1 as the mean absolute error.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.CategoricalGeneralizedCrossEntropy()
    >>> float(loss(np.array([1]), np.array([[0.75, 0.25]])))
    1.0
    """

    def __init__(
        self,
        q: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_generalized_cross_entropy",
        dtype: Any = None,
    ):
        if not 0 < q < 1:
            raise ValueError(f"`q` must be between 0 and 1, both excluded. Received: q={q}")
        super().__init__(
            categorical_generalized_cross_entropy,
            reduction=reduction,
            name=name,
            dtype=dtype,
            q=q,
        )
