"""The circle loss: embeddings of one class close together, those of others apart."""

from typing import Any

from kerascnn import ops
from kerascnn.losses.function_losses import NamedLoss, as_labels, takes_labels
from kerascnn.masks import set_mask

# This stands for the exponent of an empty sum. Minus infinity would give NaN gradients, and the sum
# of two of these does not overflow.
_NOTHING = {"float16": -1.6e4, "float64": -4e307}


def _log_sum_exp_of(values: Any, mask: Any) -> Any:
    """Computes log(sum(exp(v))) over the last axis, of the elements that the mask keeps."""
    nothing = _NOTHING.get(str(values.dtype), -8e37)
    return ops.logsumexp(ops.where(mask, values, nothing), axis=-1)


@takes_labels
def circle(
    y_true: Any,
    y_pred: Any,
    ref_labels: Any = None,
    ref_embeddings: Any = None,
    remove_diagonal: bool = True,
    gamma: float = 80,
    margin: float = 0.4,
) -> Any:
    """The circle loss of each sample against all others.

    Pairs weigh the more the further they are from where they should be (Sun et al., Circle loss: a
    unified perspective of pair similarity optimization, 2020).

    Args:
        y_true: labels, shape `(batch_size,)`.
        y_pred: embeddings of length 1, shape `(batch_size, d)`.
        ref_labels: labels to compare with, shape `(n,)`; `y_true` where it is `None`.
        ref_embeddings: embeddings to compare with, shape `(n, d)`; `y_pred` where it is `None`.
        remove_diagonal: whether a sample is not compared with the reference of the same number,
            which without references of its own is itself.
        gamma: how steep the loss is.
        margin: how far similarities should be from 0 and 1.

    Returns:
        Values of shape `(batch_size,)`; 0 without a sample of the same or of another class, and
        `Loss` leaves these out of its means.

    >>> y_pred = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], "float32")
    >>> keras.losses.circle([0, 0, 1], y_pred, gamma=1.0).numpy().round(3)
    array([0.546, 0.546, 0.   ], dtype=float32)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = as_labels(y_true)
    references = y_pred if ref_embeddings is None else ops.convert_to_tensor(ref_embeddings)
    labels = y_true if ref_labels is None else as_labels(ref_labels)
    distances = ops.maximum(1.0 - ops.matmul(y_pred, ops.transpose(references)), 0.0)
    positive = ops.equal(ops.reshape(y_true, (-1, 1)), ops.reshape(labels, (1, -1)))
    negative = ops.logical_not(positive)
    if remove_diagonal:
        itself = ops.eye(ops.size(y_true), ops.size(labels), dtype="bool")
        positive = ops.logical_and(positive, ops.logical_not(itself))
    # The mask makes the weights of pairs of the other kind 0; weights below 0 become 0 too.
    zeros = ops.zeros_like(distances)
    positive_weights = ops.where(positive, ops.maximum(margin + distances, 0.0), zeros)
    negative_weights = ops.where(negative, ops.maximum(1.0 + margin - distances, 0.0), zeros)
    pull = -gamma * positive_weights * (margin - distances)
    push = gamma * negative_weights * (1.0 - margin - distances)
    values = ops.softplus(_log_sum_exp_of(pull, positive) + _log_sum_exp_of(push, negative))
    set_mask(values, values > 0)
    return values


class Circle(NamedLoss):
    """The circle loss of embeddings of length 1 with labels; see `circle`.

    Args:
        gamma: how steep the loss is.
        margin: how far similarities should be from 0 and 1.
        remove_diagonal: whether a sample is not compared with itself.
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.Circle(gamma=1.0)
    >>> y_pred = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> round(float(loss(np.array([0, 0, 1]), y_pred)), 3)
    0.546
    """

    def __init__(
        self,
        gamma: float = 80.0,
        margin: float = 0.4,
        remove_diagonal: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "circle",
        dtype: Any = None,
    ):
        super().__init__(
            circle,
            reduction=reduction,
            name=name,
            dtype=dtype,
            gamma=gamma,
            margin=margin,
            remove_diagonal=remove_diagonal,
        )
