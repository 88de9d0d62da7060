"""Counts of right and wrong decisions at thresholds, and rates computed from them."""

from collections.abc import Sequence
from typing import Any

from kerascnn import file_budget, ops
from kerascnn.losses.loss import divide_no_nan
from kerascnn.metrics.counting import (
    FALSE_NEGATIVES,
    FALSE_POSITIVES,
    NEG_INF,
    TRUE_NEGATIVES,
    TRUE_POSITIVES,
    are_even,
    parse_thresholds,
    update_counts,
)
from kerascnn.metrics.metric import Metric
from kerascnn.variable import Variable

Thresholds = float | Sequence[float] | None


class _ThresholdMetric(Metric):
    """Counts decisions at one or several thresholds."""

    def __init__(self, thresholds: Any, name: str | None, dtype: Any, default: float = 0.5) -> None:
        super().__init__(name=name, dtype=dtype)
        self.init_thresholds = thresholds
        self.thresholds = parse_thresholds(thresholds, default)
        self._even = are_even(self.thresholds)

    def _add_counts(self, names: Sequence[str]) -> dict[str, Variable]:
        return {
            name: self.add_variable((len(self.thresholds),), "zeros", name=name) for name in names
        }

    def _per_threshold(self, values: Any) -> Any:
        return values[0] if len(self.thresholds) == 1 else values


class _ConditionCount(_ThresholdMetric):
    _kind = ""

    def __init__(
        self, thresholds: Thresholds = None, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(thresholds, name, dtype)
        self.accumulator = self._add_counts(["accumulator"])["accumulator"]

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        update_counts(
            {self._kind: self.accumulator},
            y_true,
            y_pred,
            self.thresholds,
            even=self._even,
            sample_weight=sample_weight,
        )

    def result(self) -> Any:
        # The result must not share the variable's memory, which the next batch changes.
        return self._per_threshold(ops.add(self.accumulator.value, 0.0))

    def get_config(self) -> dict:
        return {**super().get_config(), "thresholds": self.init_thresholds}


class TruePositives(_ConditionCount):
    """The (weighted) number of positives that were predicted as such.

    Args:
        thresholds: from 0 to 1, or several; what is above is predicted as positive.
        name: see `Metric`.
        dtype: see `Metric`.

    Raises:
        ValueError: for a threshold out of range.

    >>> metric = keras.metrics.TruePositives()
    >>> metric.update_state([0, 1, 1, 1], [1, 0, 1, 1])
    >>> float(metric.result())
    2.0
    """

    _kind = TRUE_POSITIVES


class TrueNegatives(_ConditionCount):
    """The (weighted) number of negatives that were predicted as such; see `TruePositives`.

    Args:
        thresholds: see `TruePositives`.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.TrueNegatives()
    >>> metric.update_state([0, 1, 0, 0], [1, 1, 0, 0])
    >>> float(metric.result())
    2.0
    """

    _kind = TRUE_NEGATIVES


class FalsePositives(_ConditionCount):
    """The (weighted) number of negatives that were predicted as positive; see `TruePositives`.

    Args:
        thresholds: see `TruePositives`.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.FalsePositives()
    >>> metric.update_state([0, 1, 0, 0], [0, 0, 1, 1])
    >>> float(metric.result())
    2.0
    """

    _kind = FALSE_POSITIVES


class FalseNegatives(_ConditionCount):
    """The (weighted) number of positives that were predicted as negative; see `TruePositives`.

    Args:
        thresholds: see `TruePositives`.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.FalseNegatives()
    >>> metric.update_state([0, 1, 1, 1], [0, 1, 0, 0])
    >>> float(metric.result())
    2.0
    """

    _kind = FALSE_NEGATIVES


class _Share(_ThresholdMetric):
    """Computes true positives as a share of themselves and `_others`."""

    _direction = "up"
    _others = ""

    def __init__(
        self,
        thresholds: Thresholds = None,
        top_k: int | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(thresholds, name, dtype, default=0.5 if top_k is None else NEG_INF)
        self.top_k = top_k
        self.class_id = class_id
        self._counts = self._add_counts([TRUE_POSITIVES, self._others])
        self.true_positives = self._counts[TRUE_POSITIVES]

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        update_counts(
            self._counts,
            y_true,
            y_pred,
            self.thresholds,
            even=self._even,
            top_k=self.top_k,
            class_id=self.class_id,
            sample_weight=sample_weight,
        )

    def result(self) -> Any:
        right, others = self._counts[TRUE_POSITIVES].value, self._counts[self._others].value
        return self._per_threshold(divide_no_nan(right, right + others))

    def get_config(self) -> dict:
        own = {"thresholds": self.init_thresholds, "top_k": self.top_k, "class_id": self.class_id}
        return {**super().get_config(), **own}


class Precision(_Share):
    """The share of what was predicted as positive that is; 0 where nothing was.

    Args:
        thresholds: from 0 to 1, or several; what is above is predicted as positive. 0.5 where it is
            `None`, and without `top_k`.
        top_k: predict the so many largest scores of each sample as positive.
        class_id: count this class alone, a place in the last axis.
        name: see `Metric`.
        dtype: see `Metric`.

    Raises:
        ValueError: for a threshold out of range.

    >>> metric = keras.metrics.Precision()
    >>> metric.update_state([0, 1, 1, 1], [1, 0, 1, 1])
    >>> round(float(metric.result()), 4)
    0.6667
    """

    _others = FALSE_POSITIVES

    @property
    def false_positives(self) -> Variable:
        """Counts of the predictions that are positive and should not be, for each threshold."""
        return self._counts[FALSE_POSITIVES]


class Recall(_Share):
    """The share of the positives that were predicted as such; arguments as of `Precision`.

    Args:
        thresholds: see `Precision`.
        top_k: see `Precision`.
        class_id: see `Precision`.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.Recall()
    >>> metric.update_state([0, 1, 1, 1], [1, 0, 1, 1])
    >>> round(float(metric.result()), 4)
    0.6667
    """

    _others = FALSE_NEGATIVES

    @property
    def false_negatives(self) -> Variable:
        """Counts of the predictions that are negative and should not be, for each threshold."""
        return self._counts[FALSE_NEGATIVES]


ALL_COUNTS = (TRUE_POSITIVES, FALSE_POSITIVES, TRUE_NEGATIVES, FALSE_NEGATIVES)


class _BestUnderConstraint(Metric):
    """Finds the best value of a rate over all thresholds at which another one is large enough."""

    _direction = "up"
    _argument = ""

    def __init__(
        self, value: float, num_thresholds: int, class_id: int | None, name: Any, dtype: Any
    ) -> None:
        if not 0 <= value <= 1:
            raise ValueError(
                f"`{self._argument}` must be from 0 to 1. Received: {self._argument}={value}"
            )
        super().__init__(name=name, dtype=dtype)
        if num_thresholds <= 0:
            raise ValueError(
                "`num_thresholds` must be a positive integer. Received: "
                f"num_thresholds={num_thresholds}"
            )
        file_budget.charge_weight(32 * num_thresholds, self.name, "metric")
        self.value = value
        self.class_id = class_id
        self.num_thresholds = num_thresholds
        self._even = num_thresholds > 1
        self.thresholds = (
            [i / (num_thresholds - 1) for i in range(num_thresholds)] if self._even else [0.5]
        )
        shape = (len(self.thresholds),)
        self.true_positives = self.add_variable(shape, "zeros", name=TRUE_POSITIVES)
        self.false_positives = self.add_variable(shape, "zeros", name=FALSE_POSITIVES)
        self.true_negatives = self.add_variable(shape, "zeros", name=TRUE_NEGATIVES)
        self.false_negatives = self.add_variable(shape, "zeros", name=FALSE_NEGATIVES)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        update_counts(
            {name: getattr(self, name) for name in ALL_COUNTS},
            y_true,
            y_pred,
            self.thresholds,
            even=self._even,
            class_id=self.class_id,
            sample_weight=sample_weight,
        )

    def _precision(self) -> Any:
        right = self.true_positives.value
        return divide_no_nan(right, right + self.false_positives.value)

    def _recall(self) -> Any:
        right = self.true_positives.value
        return divide_no_nan(right, right + self.false_negatives.value)

    def _specificity(self) -> Any:
        right = self.true_negatives.value
        return divide_no_nan(right, right + self.false_positives.value)

    def _best(self, rate: Any, constrained: Any) -> Any:
        return ops.max(ops.where(ops.greater_equal(constrained, self.value), rate, 0.0), initial=0)

    def get_config(self) -> dict:
        own = {"num_thresholds": self.num_thresholds, self._argument: self.value}
        return {**super().get_config(), "class_id": self.class_id, **own}


class SensitivityAtSpecificity(_BestUnderConstraint):
    """The best share of positives found where at least `specificity` of the negatives are.

    Args:
        specificity: from 0 to 1.
        num_thresholds: how many thresholds are tried, in equal steps from 0 to 1.
        class_id: count this class alone, a place in the last axis.
        name: see `Metric`.
        dtype: see `Metric`.

    Raises:
        ValueError: for a number out of range.

    >>> metric = keras.metrics.SensitivityAtSpecificity(0.5)
    >>> metric.update_state([0, 0, 0, 1, 1], [0, 0.3, 0.8, 0.3, 0.8])
    >>> float(metric.result())
    0.5
    """

    _argument = "specificity"

    def __init__(
        self,
        specificity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(specificity, num_thresholds, class_id, name, dtype)
        self.specificity = specificity

    def result(self) -> Any:
        return self._best(self._recall(), self._specificity())


class SpecificityAtSensitivity(_BestUnderConstraint):
    """The best share of negatives found where at least `sensitivity` of the positives are.

    Args:
        sensitivity: from 0 to 1.
        num_thresholds: how many thresholds are tried, in equal steps from 0 to 1.
        class_id: count this class alone, a place in the last axis.
        name: see `Metric`.
        dtype: see `Metric`.

    Raises:
        ValueError: for a number out of range.

    >>> metric = keras.metrics.SpecificityAtSensitivity(0.5)
    >>> metric.update_state([0, 0, 0, 1, 1], [0, 0.3, 0.8, 0.3, 0.8])
    >>> round(float(metric.result()), 4)
    0.6667
    """

    _argument = "sensitivity"

    def __init__(
        self,
        sensitivity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(sensitivity, num_thresholds, class_id, name, dtype)
        self.sensitivity = sensitivity

    def result(self) -> Any:
        return self._best(self._specificity(), self._recall())


class PrecisionAtRecall(_BestUnderConstraint):
    """The best precision where recall is at least `recall`.

    Args:
        recall: from 0 to 1.
        num_thresholds: how many thresholds are tried, in equal steps from 0 to 1.
        class_id: count this class alone, a place in the last axis.
        name: see `Metric`.
        dtype: see `Metric`.

    Raises:
        ValueError: for a number out of range.

    >>> metric = keras.metrics.PrecisionAtRecall(0.5)
    >>> metric.update_state([0, 0, 0, 1, 1], [0, 0.3, 0.8, 0.3, 0.8])
    >>> float(metric.result())
    0.5
    """

    _argument = "recall"

    def __init__(
        self,
        recall: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(recall, num_thresholds, class_id, name, dtype)
        self.recall = recall

    def result(self) -> Any:
        return self._best(self._precision(), self._recall())


class RecallAtPrecision(_BestUnderConstraint):
    """The best recall where precision is at least `precision`.

    Args:
        precision: from 0 to 1.
        num_thresholds: how many thresholds are tried, in equal steps from 0 to 1.
        class_id: count this class alone, a place in the last axis.
        name: see `Metric`.
        dtype: see `Metric`.

    Raises:
        ValueError: for a number out of range.

    >>> metric = keras.metrics.RecallAtPrecision(0.8)
    >>> metric.update_state([0, 0, 1, 1], [0, 0.5, 0.3, 0.9])
    >>> float(metric.result())
    0.5
    """

    _argument = "precision"

    def __init__(
        self,
        precision: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(precision, num_thresholds, class_id, name, dtype)
        self.precision = precision

    def result(self) -> Any:
        return self._best(self._recall(), self._precision())
