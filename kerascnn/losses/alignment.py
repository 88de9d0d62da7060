"""The loss of sequences of labels that nobody aligned with the frames they are read from."""

from typing import Any

from kerascnn import ops
from kerascnn.losses.function_losses import NamedLoss, as_labels, takes_labels

_BLANK = 0


@takes_labels
def ctc(y_true: Any, y_pred: Any) -> Any:
    """Connectionist temporal classification, with class 0 as blank and as padding of the labels.

    Minus the logarithm of the probability of all ways in which the labels can spread over the
    frames (Graves et al., Connectionist temporal classification: labelling unsegmented sequence
    data with recurrent neural networks, 2006); see `ops.ctc_loss`, which takes lengths too.

    Args:
        y_true: labels from 1 to `num_classes - 1`, shape `(batch_size, max_length)`. As many count
            as are not 0, from the first one on: zeros belong behind the labels.
        y_pred: logits (no softmax), shape `(batch_size, frames, num_classes)`. All frames count.

    Returns:
        Values of shape `(batch_size,)`; infinite where the frames are too few for the labels, of
        which equal neighbours need a frame between them.

    Raises:
        ValueError: for targets or predictions of another rank.

    >>> y_pred = np.log([[[0.5, 0.5], [0.25, 0.75]]])
    >>> float(keras.ops.exp(-keras.losses.ctc([[1]], y_pred))[0])
    0.875
    """
    y_true = as_labels(y_true)
    y_pred = ops.convert_to_tensor(y_pred)
    for values, rank, expected in (
        (y_true, 2, "targets `y_true` of shape `(batch_size, max_length)`, integers"),
        (y_pred, 3, "logits `y_pred` of shape `(batch_size, frames, num_classes)`"),
    ):
        if len(values.shape) != rank:
            raise ValueError(
                f"The loss 'ctc' needs {expected}. Received: shape {tuple(values.shape)}"
            )
    samples, frames = y_pred.shape[:2]
    counted = ops.sum(ops.cast(ops.not_equal(y_true, _BLANK), "int32"), axis=-1)
    all_frames = ops.full((samples,), frames, dtype="int32")
    return ops.ctc_loss(y_true, y_pred, counted, all_frames, mask_index=_BLANK)


class CTC(NamedLoss):
    """Connectionist temporal classification of sequences that are not aligned; see `ctc`.

    Args:
        reduction: see `Loss`.
        name: see `Loss`.
        dtype: see `Loss`.

    >>> loss = keras.losses.CTC()
    >>> y_true = np.array([[1, 0], [1, 1]])
    >>> round(float(loss(y_true, np.zeros((2, 3, 2)))), 4)
    1.1836
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "ctc",
        dtype: Any = None,
    ):
        super().__init__(ctc, reduction=reduction, name=name, dtype=dtype)
