"""Cross-entropies, as functions and as classes."""

import warnings
from typing import Any, ClassVar

from kerascnn import ops
from kerascnn.losses.function_losses import NamedLoss, as_labels, takes_labels
from kerascnn.masks import set_mask


def categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Cross-entropy between one-hot targets and predicted classes.

    Args:
        y_true: probabilities of the classes, usually one-hot,
            shape `(batch_size, ..., num_classes)`.
        y_pred: predicted probabilities, or logits, of the same shape.
        from_logits: whether `y_pred` holds logits (before softmax) instead of probabilities.
        label_smoothing: between 0 and 1; this share of each target is spread over the classes.
        axis: the axis of the classes.

    Returns:
        Values of shape `(batch_size, ...)`.

    Raises:
        ValueError: where the shapes differ, or `axis` is a bool.

    >>> y_pred = [[0.05, 0.95, 0.0], [0.1, 0.8, 0.1]]
    >>> keras.losses.categorical_crossentropy([[0, 1, 0], [0, 0, 1]], y_pred).numpy().round(3)
    array([0.051, 2.303], dtype=float32)
    """
    y_true, y_pred = categorical_targets(
        "categorical_crossentropy", y_true, y_pred, label_smoothing, axis
    )
    return ops.categorical_crossentropy(y_true, y_pred, from_logits=from_logits, axis=axis)


@takes_labels
def sparse_categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> Any:
    """Cross-entropy between integer labels and predicted classes.

    Args:
        y_true: labels from 0 to `num_classes - 1`, shape `(batch_size, ...)`, or with a last axis
            of extent 1.
        y_pred: predicted probabilities, or logits, shape `(batch_size, ..., num_classes)`.
        from_logits: whether `y_pred` holds logits (before softmax) instead of probabilities.
        ignore_class: a label whose samples have the loss 0; `Loss` leaves them out of its means.
        axis: the axis of the classes.

    Returns:
        Values of shape `(batch_size, ...)`; NaN for a label that is out of range.

    Raises:
        ValueError: where the shapes don't fit, or `axis` is a bool.

    >>> y_pred = [[0.05, 0.95, 0.0], [0.1, 0.8, 0.1]]
    >>> keras.losses.sparse_categorical_crossentropy([1, 2], y_pred).numpy().round(3)
    array([0.051, 2.303], dtype=float32)
    """
    _check_axis(axis)
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = as_labels(y_true)
    if len(y_true.shape) == len(y_pred.shape) and y_true.shape[axis] == 1:
        y_true = ops.squeeze(y_true, axis=axis)
    if ignore_class is not None:
        ignored = ops.equal(y_true, ignore_class)
        y_true = ops.where(ignored, ops.zeros_like(y_true), y_true)
    losses = ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits, axis)
    if ignore_class is not None:
        losses = ops.where(ignored, ops.zeros_like(losses), losses)
        set_mask(losses, ops.logical_not(ignored))
    return losses


def binary_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Cross-entropy between targets of 0 or 1 and predicted probabilities, averaged over `axis`.

    Args:
        y_true: targets, shape `(batch_size, ..., d)`.
        y_pred: predicted probabilities of 1, or logits, of the same shape.
        from_logits: whether `y_pred` holds logits (before the sigmoid) instead of probabilities.
        label_smoothing: between 0 and 1; moves targets this far towards 0.5.
        axis: the axis that the mean is taken over.

    Returns:
        Values of shape `(batch_size, ...)`.

    Raises:
        ValueError: where the shapes differ.

    >>> y_pred = [[0.6, 0.4], [0.4, 0.6]]
    >>> keras.losses.binary_crossentropy([[0, 1], [0, 0]], y_pred).numpy().round(3)
    array([0.916, 0.714], dtype=float32)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = smoothed_binary_targets(y_true, y_pred, label_smoothing)
    return ops.mean(ops.binary_crossentropy(y_true, y_pred, from_logits=from_logits), axis=axis)


def smoothed_binary_targets(y_true: Any, y_pred: Any, label_smoothing: float) -> Any:
    """Converts targets of 0 or 1 to the predictions' dtype and moves them towards 0.5."""
    y_true = ops.cast(y_true, str(y_pred.dtype))
    if not label_smoothing:
        return y_true
    return ops.add(ops.multiply(y_true, 1.0 - label_smoothing), 0.5 * label_smoothing)


def categorical_targets(
    name: str, y_true: Any, y_pred: Any, label_smoothing: float, axis: Any
) -> tuple[Any, Any]:
    """Returns checked and smoothed one-hot targets, and predictions, for the loss called `name`."""
    _check_axis(axis)
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, str(y_pred.dtype))
    if y_pred.shape[-1] == 1:
        warnings.warn(
            f"{name} expects one prediction per class, but the predictions' shape is "
            f"{tuple(y_pred.shape)}. With one output for two classes use binary_crossentropy.",
            SyntaxWarning,
            stacklevel=3,
        )
    if label_smoothing:
        even_share = label_smoothing / y_true.shape[-1]
        y_true = ops.add(ops.multiply(y_true, 1.0 - label_smoothing), even_share)
    return y_true, y_pred


def _check_axis(axis: Any) -> None:
    if isinstance(axis, bool):
        raise ValueError(f"`axis` must be an integer. Received: axis={axis} of type bool")


class BinaryCrossentropy(NamedLoss):
    """Cross-entropy for outputs that are each 0 or 1.

    Args:
        from_logits: whether predictions are logits (before the sigmoid).
        label_smoothing: between 0 and 1; moves targets this far towards 0.5.
        axis: the axis that the mean is taken over.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.BinaryCrossentropy()
    >>> round(float(loss(np.array([[1.0]]), np.array([[0.8]]))), 4)
    0.2231
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            binary_crossentropy,
            reduction=reduction,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class CategoricalCrossentropy(NamedLoss):
    """Cross-entropy for one-hot targets; integer labels need `SparseCategoricalCrossentropy`.

    Args:
        from_logits: whether predictions are logits (before softmax).
        label_smoothing: between 0 and 1; this share of each target is spread over the classes.
        axis: the axis of the classes.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.CategoricalCrossentropy()
    >>> round(float(loss(np.array([[0.0, 1.0]]), np.array([[0.2, 0.8]]))), 4)
    0.2231
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            categorical_crossentropy,
            reduction=reduction,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class SparseCategoricalCrossentropy(NamedLoss):
    """Cross-entropy for integer labels; one-hot targets need `CategoricalCrossentropy`.

    Args:
        from_logits: whether predictions are logits (before softmax).
        ignore_class: a label whose samples have the loss 0 and are left out of the mean.
        reduction: see `Loss`.
        axis: the axis of the classes.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.SparseCategoricalCrossentropy()
    >>> round(float(loss(np.array([1]), np.array([[0.2, 0.8]]))), 4)
    0.2231
    """

    _left_out: ClassVar[dict[str, Any]] = {"axis": -1}

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        axis: int = -1,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            sparse_categorical_crossentropy,
            reduction=reduction,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )
