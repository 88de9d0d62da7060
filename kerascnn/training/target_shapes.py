"""Checks whether a batch's targets fit the output with which a loss compares them."""

from __future__ import annotations

from typing import Any

from kerascnn import losses
from kerascnn.losses.function_losses import LossFunctionWrapper

_LABELS = losses.sparse_categorical_crossentropy
_ONE_HOT = losses.categorical_crossentropy
# The targets of these losses have the output's shape.
_SAME_SHAPE = (_ONE_HOT, losses.binary_crossentropy, losses.binary_focal_crossentropy)
# These losses subtract or multiply element by element, with axes of size 1 repeated.
_ELEMENTWISE = (
    losses.mean_squared_error,
    losses.mean_absolute_error,
    losses.mean_absolute_percentage_error,
    losses.mean_squared_logarithmic_error,
    losses.huber,
    losses.log_cosh,
    losses.cosine_similarity,
    losses.kl_divergence,
    losses.poisson,
    losses.hinge,
    losses.squared_hinge,
    losses.categorical_hinge,
    losses.categorical_focal_crossentropy,
    losses.dice,
    losses.tversky,
)


def check_target_shape(loss: Any, target: tuple, output: tuple) -> None:
    """Checks shapes before the loss is computed, whose ops would only name themselves.

    Args:
        loss: a `Loss`; losses of the user's own are not checked.
        target: shape of the targets, batch included.
        output: shape of the model's output.

    Raises:
        ValueError: naming the loss, the shapes expected and received, and the loss that would fit.
    """
    fn = loss.fn if isinstance(loss, LossFunctionWrapper) else None
    if fn is _LABELS:
        axis = loss._fn_kwargs.get("axis", -1) % len(output)
        expected = (*output[:axis], *output[axis + 1 :])
        fits = target in (expected, (*output[:axis], 1, *output[axis + 1 :]))
        fits = fits or (target[:-1] == expected and target[-1:] == (1,)) or target == (*expected, 1)
    elif fn in _SAME_SHAPE:
        expected = output
        fits = _of_same_rank(target, output) == output
    elif fn in _ELEMENTWISE:
        expected = output
        fits = _broadcast(_of_same_rank(target, output), output)
    else:
        return
    if not fits and output and target and target[0] != output[0]:
        raise ValueError(
            f"The loss '{loss.name}' needs a result for each sample, but the model gives "
            f"{output[0]} for a batch of {target[0]}: one of its layers changes the axis of "
            "samples, as Concatenate(axis=0) does. Layers count that axis as 0."
        )
    if not fits:
        raise ValueError(
            f"The loss '{loss.name}' needs targets of shape {_batch_shape(expected)} for the "
            f"model's output of shape {_batch_shape(output)}. Received: y of shape "
            f"{_batch_shape(target)}. {_way_out(fn, target, output)}"
        )


def _of_same_rank(target: tuple, output: tuple) -> tuple:
    """Adds or removes a last axis of size 1 where ranks differ by one, as losses do."""
    if len(target) == len(output) + 1 and target[-1] == 1:
        return target[:-1]
    if len(output) == len(target) + 1 and output[-1] == 1:
        return (*target, 1)
    return target


def _broadcast(target: tuple, output: tuple) -> bool:
    """Tells whether sizes from the last axis on are equal or 1, which is all Keras requires."""
    pairs = zip(reversed(target), reversed(output), strict=False)
    return all(t == o or 1 in (t, o) for t, o in pairs)


def _batch_shape(shape: tuple) -> str:
    return "(" + ", ".join(["batch_size", *map(str, shape[1:])]) + ")"


def _way_out(fn: Any, target: tuple, output: tuple) -> str:
    if fn is _LABELS and target == output:
        return (
            "That looks like one-hot labels: use the loss 'categorical_crossentropy', or pass "
            "np.argmax(y, axis=-1)."
        )
    if fn is _ONE_HOT and target in (output[:-1], (*output[:-1], 1)):
        return (
            "That looks like class numbers: use the loss 'sparse_categorical_crossentropy', or "
            f"pass keras.utils.to_categorical(y, num_classes={output[-1]})."
        )
    classes = target in (output[:-1], (*output[:-1], 1)) and output[-1] > 1
    if classes and fn in _SAME_SHAPE + _ELEMENTWISE:
        return (
            "If y has class numbers, use the loss 'sparse_categorical_crossentropy' and a softmax "
            "at the end of the model; else reshape y, or change the number of units of the last "
            "layer."
        )
    return "Reshape y, or change the number of units of the last layer."
