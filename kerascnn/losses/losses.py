"""Cross-entropies and the mean squared error, as functions and as classes."""

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from kerascnn import ops, serialization, trees
from kerascnn.losses.loss import Loss, squeeze_or_expand_to_same_rank
from kerascnn.masks import set_mask

_Function = Callable[..., Any]
_label_functions: list[_Function] = []


def takes_labels(fn: _Function) -> _Function:
    """Marks a loss whose targets are class numbers, which losses keep as integers.

    As floats they would lose exactness above 2**24 and cost a conversion in every step.
    """
    _label_functions.append(fn)
    return fn


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
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.cast(y_true, str(y_pred.dtype))
    y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
    return ops.mean(ops.square(ops.subtract(y_true, y_pred)), axis=-1)


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


def as_labels(y_true: Any) -> Any:
    y_true = ops.convert_to_tensor(y_true)
    return y_true if str(y_true.dtype) in ("int32", "int64") else ops.cast(y_true, "int32")


class LossFunctionWrapper(Loss):
    """A loss made from a function of `(y_true, y_pred)` that returns one value per sample.

    Args:
        fn: the function.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.
        **kwargs: passed on to the function.

    Example:

    >>> def gap(y_true, y_pred, power=1):
    ...     return keras.ops.mean(keras.ops.abs(y_pred - y_true) ** power, axis=-1)
    >>> loss = keras.losses.LossFunctionWrapper(gap, power=2)
    >>> float(loss(np.zeros((2, 1)), np.array([[1.0], [3.0]])))
    5.0
    """

    def __init__(
        self,
        fn: Callable,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.fn = fn
        self._fn_kwargs = kwargs

    def call(self, y_true: Any, y_pred: Any) -> Any:
        if hasattr(y_true, "shape") and hasattr(y_pred, "shape"):
            y_true, y_pred = squeeze_or_expand_to_same_rank(y_true, y_pred)
        elif isinstance(y_pred, (list, tuple, dict)):  # the predictions are several outputs
            pairs = [
                squeeze_or_expand_to_same_rank(*pair)
                for pair in zip(trees.flatten(y_true), trees.flatten(y_pred), strict=True)
            ]
            y_true = trees.pack_as(y_true, [pair[0] for pair in pairs])
            y_pred = trees.pack_as(y_pred, [pair[1] for pair in pairs])
        return self.fn(y_true, y_pred, **self._fn_kwargs)

    def _convert_target(self, y_true: Any) -> Any:
        if any(self.fn is fn for fn in _label_functions):
            return as_labels(y_true)
        return super()._convert_target(y_true)

    def get_config(self) -> dict:
        own = {"fn": self.fn, **self._fn_kwargs}
        return {**super().get_config(), **serialization.serialize_object(own)}

    @classmethod
    def from_config(cls, config: dict) -> "Loss":
        if "fn" in config:
            from kerascnn import losses

            config = {**config, "fn": losses.get(config["fn"])}
        return cls(**config)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", self.fn)
        return f"<{type(self).__name__} {name}, kwargs={self._fn_kwargs}>"


class NamedLoss(LossFunctionWrapper):
    """A wrapper whose configuration holds the arguments of its own constructor."""

    # These are arguments, and their defaults, that Keras loses since it leaves them out of the
    # configuration. Here they are in it if they are not the default.
    _left_out: ClassVar[dict[str, Any]] = {}

    def __init__(self, fn: Callable, **kwargs: Any):
        super().__init__(fn, **kwargs)
        for name, value in self._fn_kwargs.items():
            setattr(self, name, value)

    def get_config(self) -> dict:
        arguments = {
            name: value
            for name, value in self._fn_kwargs.items()
            if name not in self._left_out or value != self._left_out[name]
        }
        return {**Loss.get_config(self), **arguments}


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
