"""Sums by class and by threshold: what confusion matrices and curves are made of.

None of it is a matrix product: these may round to TF32 on a GPU, which is not for counts.
"""

from typing import Any

import numpy as np

from kerascnn import config, ops
from kerascnn.losses.loss import squeeze_or_expand_to_same_rank
from kerascnn.ops import dispatch
from kerascnn.variable import Variable

# This stands for a score below every threshold.
NEG_INF = -1e10

TRUE_POSITIVES = "true_positives"
FALSE_POSITIVES = "false_positives"
TRUE_NEGATIVES = "true_negatives"
FALSE_NEGATIVES = "false_negatives"


def sums_by_index(values: Any, indices: Any, count: int) -> Any:
    """The sum of the values of each index.

    Args:
        values: floats of shape `(n, ...)`.
        indices: int32 from 0 to `count - 1`, shape `(n,)`.
        count: how many sums there are.

    Returns:
        Sums of shape `(count, ...)`.
    """
    shape = [count, *values.shape[1:]]
    return dispatch.apply_one("gather_grad", [values, indices], {"axis": 0, "input_shape": shape})


def sums_of_the_rest(values: Any) -> Any:
    """Returns for each position of the first axis the sum of the values from there on."""
    count, step = values.shape[0], 1
    while step < count:
        none = ops.zeros_like(values[:step])
        values = values + ops.concatenate([values[step:], none], axis=0)
        step *= 2
    return values


def keep_top_k(x: Any, k: int) -> Any:
    """The `k` largest scores along the last axis, the first of equals; `NEG_INF` for the others.

    Raises:
        ValueError: where there are less than `k`.
    """
    classes = x.shape[-1]
    if not 0 < k <= classes:
        raise ValueError(
            f"`top_k` must be from 1 to the number of classes, {classes}. Received: top_k={k}"
        )
    rest = x
    for _ in range(k):
        best = ops.one_hot(ops.argmax(rest, axis=-1), classes, dtype="bool")
        rest = ops.where(best, -np.inf, rest)
    return ops.where(ops.equal(rest, -np.inf), x, NEG_INF)


def parse_thresholds(thresholds: Any, default: float = 0.5) -> list[float]:
    """One or several thresholds as a list.

    Raises:
        ValueError: for one that is not from 0 to 1.
    """
    if thresholds is None:
        return [default]
    several = list(thresholds) if isinstance(thresholds, (list, tuple)) else [thresholds]
    wrong = [t for t in several if t is None or not 0 <= t <= 1]
    if wrong:
        raise ValueError(f"Thresholds must be from 0 to 1. Received: {wrong}")
    return several


def are_even(thresholds: Any) -> bool:
    """Tells whether there are at least 3 thresholds, in equal steps from 0 to 1."""
    count = len(thresholds)
    if count < 3:
        return False
    even = np.arange(count, dtype="float32") / (count - 1)
    return bool(np.allclose(thresholds, even, atol=config.epsilon()))


def update_counts(
    counts: dict[str, Variable],
    y_true: Any,
    y_pred: Any,
    thresholds: Any,
    *,
    even: bool,
    top_k: int | None = None,
    class_id: int | None = None,
    sample_weight: Any = None,
    multi_label: bool = False,
    label_weights: Any = None,
) -> None:
    """Adds a batch's true and false positives and negatives at each threshold to `counts`.

    Args:
        counts: variables by name, of shape `(thresholds,)`, or `(thresholds, labels)` with
            `multi_label`.
        y_true: targets; anything but 0 is positive.
        y_pred: scores of the same shape. What is above a threshold is predicted as positive.
        thresholds: their values.
        even: whether they are in equal steps from 0 to 1; the scores' place among them is computed
            instead of compared then. A first one below 0 is passed by every score.
        top_k: how many of the largest scores of a sample can be positive.
        class_id: the only class that counts.
        sample_weight: weights of samples, or of all elements.
        multi_label: whether each label has counts of its own.
        label_weights: weights of the last axis.

    Raises:
        ValueError: where shapes don't fit.
    """
    dtype = next(iter(counts.values())).dtype
    y_true, y_pred = ops.cast(y_true, dtype), ops.cast(y_pred, dtype)
    y_pred, y_true = squeeze_or_expand_to_same_rank(y_pred, y_true)
    if tuple(y_true.shape) != tuple(y_pred.shape):
        raise ValueError(
            "Targets and scores must have the same shape. Received: "
            f"y_true.shape={tuple(y_true.shape)}, y_pred.shape={tuple(y_pred.shape)}"
        )
    weights = None
    if sample_weight is not None:
        weights = ops.expand_dims(ops.cast(sample_weight, dtype), axis=-1)
        _, weights = squeeze_or_expand_to_same_rank(y_true, weights, expand_rank_1=False)
    if top_k is not None:
        y_pred = keep_top_k(y_pred, top_k)
    if class_id is not None:
        y_true, y_pred = _of_class(y_true, class_id), _of_class(y_pred, class_id)
    ones = ops.ones_like(y_pred)
    for factor in (weights, label_weights):
        if factor is not None:
            ones = ops.multiply(ones, ops.cast(factor, dtype))
    weights = ops.broadcast_to(ones, tuple(y_pred.shape))
    if not multi_label:
        y_true, y_pred = ops.reshape(y_true, (-1,)), ops.reshape(y_pred, (-1,))
        weights = ops.reshape(weights, (-1,))
    is_true = ops.not_equal(y_true, 0.0)
    nothing = ops.zeros_like(weights)
    hits, misses = ops.where(is_true, weights, nothing), ops.where(is_true, nothing, weights)
    both = ops.stack([hits, misses], axis=-1)
    if even:
        above = _above_even(both, y_pred, len(thresholds), thresholds[0] < 0)
    else:
        above = _above(both, y_pred, thresholds)
    total = ops.sum(both, axis=0)
    added = {
        TRUE_POSITIVES: lambda: above[..., 0],
        FALSE_POSITIVES: lambda: above[..., 1],
        FALSE_NEGATIVES: lambda: total[..., 0] - above[..., 0],
        TRUE_NEGATIVES: lambda: total[..., 1] - above[..., 1],
    }
    for name, variable in counts.items():
        variable.assign_add(added[name]())


def _of_class(x: Any, class_id: int) -> Any:
    if len(x.shape) == 1:
        raise ValueError(
            "With `class_id`, targets and scores need an axis of classes, (batch_size, "
            f"num_classes). Received: shape={tuple(x.shape)}"
        )
    return x[..., class_id, None]


def _above(both: Any, scores: Any, thresholds: Any) -> Any:
    """Sums over the first axis what is above each threshold, by comparing all with all."""
    limits = np.asarray(thresholds, "float64").reshape(-1, *[1] * len(scores.shape))
    is_above = ops.greater(ops.expand_dims(scores, 0), ops.cast(limits, str(scores.dtype)))
    kept = ops.where(ops.expand_dims(is_above, -1), ops.expand_dims(both, 0), 0.0)
    return ops.sum(kept, axis=1)


def _above_even(both: Any, scores: Any, count: int, all_pass_first: bool) -> Any:
    """The same for `count` thresholds in equal steps: sums of the scores between two, added up.

    Memory is that of the scores and the sums, however many thresholds there are.
    """
    labels = tuple(scores.shape[1:])
    passed = ops.ceil(ops.clip(scores, 0.0, 1.0) * float(count - 1))
    if all_pass_first:
        passed = ops.maximum(passed, 1.0)
    place, places = ops.cast(passed, "int32"), count
    if labels:
        place = place * labels[0] + np.arange(labels[0], dtype="int32")
        places *= labels[0]
    sums = sums_by_index(ops.reshape(both, (-1, 2)), ops.reshape(place, (-1,)), places)
    sums = ops.reshape(sums, (count, *labels, 2))
    rest = sums_of_the_rest(sums)[1:]
    return ops.concatenate([rest, ops.zeros_like(sums[:1])], axis=0)
