"""Losses of masks, which measure the overlap of the predicted and the true region."""

from typing import Any

from kerascnn import config, ops
from kerascnn.losses.function_losses import NamedLoss


def _same_type(y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    y_pred = ops.convert_to_tensor(y_pred)
    return ops.cast(y_true, str(y_pred.dtype)), y_pred


def dice(y_true: Any, y_pred: Any, axis: Any = None) -> Any:
    """1 - 2 · sum(target · prediction) / (sum(target) + sum(prediction)).

    0 for the same region, 1 for regions with nothing in common (Dice, Measures of the amount of
    ecologic association between species, 1945).

    Args:
        y_true: from 0 to 1, of any shape.
        y_pred: predictions of the same shape.
        axis: one or several axes of the sums; all of them where it is `None`.

    Returns:
        A number, or values of the shape without `axis`.

    >>> round(float(keras.losses.dice([[1.0, 0.0]], [[0.5, 0.5]])), 4)
    0.5
    """
    y_true, y_pred = _same_type(y_true, y_pred)
    common = ops.sum(y_true * y_pred, axis=axis)
    total = ops.sum(y_true, axis=axis) + ops.sum(y_pred, axis=axis)
    return 1.0 - 2.0 * common / (total + config.epsilon())


def tversky(
    y_true: Any, y_pred: Any, alpha: float = 0.5, beta: float = 0.5, axis: Any = None
) -> Any:
    """1 - common / (common + alpha · a + beta · b), which with 0.5 and 0.5 is `dice`.

    `a` is what of the targets the predictions miss, `b` what they have beyond the targets (Salehi
    et al., Tversky loss function for image segmentation using 3D fully convolutional deep
    networks, 2017).

    Args:
        y_true: from 0 to 1, of any shape.
        y_pred: predictions of the same shape.
        alpha: weight of what is missed.
        beta: weight of what is too much.
        axis: one or several axes of the sums; all of them where it is `None`.

    Returns:
        A number, or values of the shape without `axis`.

    >>> round(float(keras.losses.tversky([[1.0, 0.0]], [[0.5, 0.5]], alpha=1.0, beta=0.0)), 4)
    0.5
    """
    y_true, y_pred = _same_type(y_true, y_pred)
    common = ops.sum(y_true * y_pred, axis=axis)
    missed = ops.sum((1.0 - y_pred) * y_true, axis=axis)
    beyond = ops.sum(y_pred * (1.0 - y_true), axis=axis)
    return 1.0 - common / (common + missed * alpha + beyond * beta + config.epsilon())


class Dice(NamedLoss):
    """1 - twice the common part of targets and predictions over their sum; see `dice`.

    Args:
        axis: one or several axes of the sums; all of them where it is `None`.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.Dice()
    >>> round(float(loss(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]))), 4)
    0.5
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "dice",
        axis: Any = None,
        dtype: Any = None,
    ):
        super().__init__(dice, reduction=reduction, name=name, dtype=dtype, axis=axis)


class Tversky(NamedLoss):
    """`Dice` with weights for what is missed and what is too much; see `tversky`.

    Args:
        alpha: weight of what is missed.
        beta: weight of what is too much.
        axis: one or several axes of the sums; all of them where it is `None`.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.Tversky(alpha=1.0, beta=0.0)
    >>> round(float(loss(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]))), 4)
    0.5
    """

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "tversky",
        axis: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            tversky,
            reduction=reduction,
            name=name,
            dtype=dtype,
            alpha=alpha,
            beta=beta,
            axis=axis,
        )
