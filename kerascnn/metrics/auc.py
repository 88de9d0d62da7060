"""The area under a curve of two rates over all thresholds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, file_budget, ops
from kerascnn.losses.loss import divide_no_nan
from kerascnn.metrics.confusion_metrics import ALL_COUNTS
from kerascnn.metrics.counting import are_even, update_counts
from kerascnn.metrics.metric import Metric

_CURVES = ("ROC", "PR", "PRGAIN")
_SUMMATIONS = ("interpolation", "majoring", "minoring")


def _one_of(value: Any, choices: tuple[str, ...], spellings: Any, what: str) -> str:
    for choice in choices:
        if value in (choice, spellings(choice)):
            return choice
    raise ValueError(f"Invalid {what} {value!r}. Expected one of {', '.join(map(repr, choices))}.")


class AUC(Metric):
    """The area under the ROC or the precision-recall curve, approximated at many thresholds.

    Args:
        num_thresholds: how many thresholds there are; more are more exact.
        curve: `"ROC"` (recall over false positive rate), `"PR"` (precision over recall;
            interpolated after Davis and Goadrich, The relationship between precision-recall and ROC
            curves, 2006), or `"PRGAIN"` (Flach and Kull, Precision-recall-gain curves, 2015).
        summation_method: height of the area between two thresholds: `"interpolation"` (their mean),
            `"majoring"` (the larger), `"minoring"` (the smaller).
        name: see `Metric`.
        dtype: see `Metric`.
        thresholds: custom thresholds from 0 to 1; one below 0 and one above 1 are added.
        multi_label: whether labels, the last of two axes, have areas of their own, whose mean is
            the result. Else all elements are decisions of one kind.
        num_labels: how many labels there are, to have the state made at once.
        label_weights: weights of the labels: in the mean with `multi_label`, else in the counts.
        from_logits: whether predictions are logits (before the sigmoid).

    Raises:
        ValueError: for an argument out of its range, or `num_labels` without `multi_label`.

    >>> metric = keras.metrics.AUC(num_thresholds=3)
    >>> metric.update_state([0, 0, 1, 1], [0, 0.5, 0.3, 0.9])
    >>> float(metric.result())
    0.75
    """

    _direction = "up"

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        name: str | None = None,
        dtype: Any = None,
        thresholds: Sequence[float] | None = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Any = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.curve = _one_of(curve, _CURVES, str.lower, "AUC curve")
        self.summation_method = _one_of(
            summation_method, _SUMMATIONS, str.capitalize, "AUC summation method"
        )
        self._init_from_thresholds = thresholds is not None
        if thresholds is not None:
            inner = sorted(thresholds)
            self._even = are_even([0.0, *inner, 1.0])
        else:
            if num_thresholds <= 1:
                raise ValueError(
                    "`num_thresholds` must be an integer above 1. Received: "
                    f"num_thresholds={num_thresholds}"
                )
            file_budget.charge_weight(32 * num_thresholds, self.name, "metric")
            inner = [i / (num_thresholds - 1) for i in range(1, num_thresholds - 1)]
            self._even = True
        self._thresholds = [-config.epsilon(), *inner, 1.0 + config.epsilon()]
        self.num_thresholds = len(self._thresholds)
        self.multi_label = multi_label
        self.num_labels = num_labels
        self.label_weights = (
            None if label_weights is None else np.asarray(label_weights, dtype="float32")
        )
        self._from_logits = from_logits
        self._built = False
        if multi_label:
            if num_labels:
                self._build((self.num_thresholds, num_labels))
        elif num_labels:
            raise ValueError("`num_labels` is for `multi_label=True` only.")
        else:
            self._build((self.num_thresholds,))

    @property
    def thresholds(self) -> list[float]:
        """The thresholds, the one below 0 and the one above 1 included."""
        return list(self._thresholds)

    def _build(self, shape: tuple[int, ...]) -> None:
        for name in ALL_COUNTS:
            setattr(self, name, self.add_variable(shape, "zeros", name=name))
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_pred = ops.convert_to_tensor(y_pred)
        if not self._built:
            if len(y_pred.shape) != 2:
                raise ValueError(
                    "With `multi_label=True` predictions need two axes, (batch_size, num_labels). "
                    f"Received: y_pred.shape={tuple(y_pred.shape)}"
                )
            self._build((self.num_thresholds, y_pred.shape[1]))
        if self._from_logits:
            y_pred = ops.sigmoid(y_pred)
        update_counts(
            {name: getattr(self, name) for name in ALL_COUNTS},
            y_true,
            y_pred,
            self._thresholds,
            even=self._even,
            sample_weight=sample_weight,
            multi_label=self.multi_label,
            label_weights=None if self.multi_label else self.label_weights,
        )

    def result(self) -> Any:
        if not self._built:
            return ops.zeros(())
        tp, fp, tn, fn = (getattr(self, name).value for name in ALL_COUNTS)
        if self.curve == "PR" and self.summation_method == "interpolation":
            return self._over_labels(_interpolated_precision_recall(tp, fp, fn))
        recall = divide_no_nan(tp, tp + fn)
        if self.curve == "ROC":
            x, y = divide_no_nan(fp, fp + tn), recall
        elif self.curve == "PR":
            x, y = recall, divide_no_nan(tp, tp + fp)
        else:
            x, y = _gains(tp, fp, tn, fn)
        left, right = y[:-1], y[1:]
        heights = {
            "interpolation": lambda: (left + right) / 2.0,
            "minoring": lambda: ops.minimum(left, right),
            "majoring": lambda: ops.maximum(left, right),
        }[self.summation_method]()
        return self._over_labels((x[:-1] - x[1:]) * heights)

    def _over_labels(self, areas: Any) -> Any:
        """Adds up the areas between thresholds, and takes the mean over labels."""
        if not self.multi_label:
            return ops.sum(areas)
        by_label = ops.sum(areas, axis=0)
        if self.label_weights is None:
            return ops.mean(by_label)
        weights = ops.cast(self.label_weights, str(by_label.dtype))
        return divide_no_nan(ops.sum(by_label * weights), ops.sum(weights))

    def get_config(self) -> dict:
        weights = self.label_weights
        own = {
            "num_thresholds": self.num_thresholds,
            "curve": self.curve,
            "summation_method": self.summation_method,
            "multi_label": self.multi_label,
            "num_labels": self.num_labels,
            "label_weights": None if weights is None else weights.tolist(),
            "from_logits": self._from_logits,
        }
        if self._init_from_thresholds:
            own["thresholds"] = self._thresholds[1:-1]
        return {**super().get_config(), **own}


def _interpolated_precision_recall(tp: Any, fp: Any, fn: Any) -> Any:
    """Returns areas between thresholds; true positives grow in proportion to positives."""
    positive = tp + fp
    more_right = tp[:-1] - tp[1:]
    slope = divide_no_nan(more_right, ops.maximum(positive[:-1] - positive[1:], 0.0))
    intercept = tp[1:] - slope * positive[1:]
    both = ops.logical_and(positive[:-1] > 0, positive[1:] > 0)
    ratio = divide_no_nan(positive[:-1], ops.maximum(positive[1:], 0.0))
    ratio = ops.where(both, ratio, ops.ones_like(ratio))
    return divide_no_nan(
        slope * (more_right + intercept * ops.log(ratio)), ops.maximum(tp[1:] + fn[1:], 0.0)
    )


def _gains(tp: Any, fp: Any, tn: Any, fn: Any) -> tuple[Any, Any]:
    """Returns recall gain and precision gain."""
    odds = divide_no_nan(tp + fn, tn + fp)
    nothing = ops.equal(tp, 0.0)
    recall = ops.where(nothing, 0.0, 1.0 - odds * divide_no_nan(fn, tp))
    precision = ops.where(nothing, 1.0, 1.0 - odds * divide_no_nan(fp, tp))
    return ops.maximum(recall, 0.0), precision
