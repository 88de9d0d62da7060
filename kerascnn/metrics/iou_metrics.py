"""Intersection over union: how much predicted and true regions of classes have in common."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, dtypes, ops
from kerascnn.metrics.counting import sums_by_index
from kerascnn.metrics.metric import Metric


class IoU(Metric):
    """The mean over classes of what targets and predictions have in common over what either has.

    Classes that neither occur nor are predicted are left out of the mean.

    Args:
        num_classes: how many classes there are.
        target_class_ids: the classes of the mean.
        name: see `Metric`.
        dtype: of the confusion matrix, int32 where it is `None`; weights are cut to it.
        ignore_class: a label whose elements don't count.
        sparse_y_true: whether targets are labels; else scores whose largest is taken.
        sparse_y_pred: whether predictions are labels; else scores whose largest is taken.
        axis: the axis of the scores.

    Raises:
        ValueError: for a class that there is not.

    >>> metric = keras.metrics.IoU(num_classes=2, target_class_ids=[0])
    >>> metric.update_state([0, 0, 1, 1], [0, 1, 0, 1])
    >>> round(float(metric.result()), 4)
    0.3333
    """

    _direction = "up"

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(name=name, dtype=dtype or "int32")
        if num_classes < 1:
            raise ValueError(f"There must be at least one class. Received: {num_classes=}")
        # Before the list of classes: what a file may ask for is decided by this.
        self.total_cm = self.add_variable(
            (num_classes, num_classes), "zeros", dtype=self.dtype, name="total_confusion_matrix"
        )
        if max(target_class_ids, default=0) >= num_classes:
            raise ValueError(
                f"Target class id {max(target_class_ids)} is out of range: there are the classes "
                f"from 0 to {num_classes - 1}."
            )
        self.num_classes = num_classes
        self.target_class_ids = list(target_class_ids)
        self.ignore_class = ignore_class
        self.sparse_y_true = sparse_y_true
        self.sparse_y_pred = sparse_y_pred
        self.axis = axis

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        if not self.sparse_y_true:
            y_true = ops.argmax(y_true, axis=self.axis)
        if not self.sparse_y_pred:
            y_pred = ops.argmax(y_pred, axis=self.axis)
        y_true, y_pred = self._labels(y_true), self._labels(y_pred)
        inside = ops.logical_and(self._exists(y_true), self._exists(y_pred))
        if self.ignore_class is not None:
            inside = ops.logical_and(inside, ops.not_equal(y_true, self.ignore_class))
        weights = self._weights(sample_weight, tuple(y_true.shape))
        cell = ops.where(inside, y_true * self.num_classes + y_pred, 0)
        counted = ops.where(inside, weights, 0.0)
        matrix = sums_by_index(counted, ops.cast(cell, "int32"), self.num_classes**2)
        shape = (self.num_classes, self.num_classes)
        self.total_cm.assign_add(ops.cast(ops.reshape(matrix, shape), self.dtype))

    def _labels(self, labels: Any) -> Any:
        return ops.reshape(ops.cast(labels, self.dtype), (-1,))

    def _exists(self, labels: Any) -> Any:
        return ops.logical_and(labels >= 0, labels < self.num_classes)

    def _weights(self, sample_weight: Any, shape: tuple[int, ...]) -> Any:
        """Returns a weight for each element in float64, in which sums of integers are exact."""
        if sample_weight is None:
            return ops.ones(shape, "float64")
        is_integer = dtypes.is_integer(self.dtype)
        if is_integer and "float" in str(getattr(sample_weight, "dtype", "")):
            warnings.warn(
                f"{self.name} counts in {self.dtype}, which the sample weights, of dtype "
                f"{sample_weight.dtype}, are cut to. Use dtype='float32' for fractions.",
                UserWarning,
                stacklevel=3,
            )
        weights = ops.cast(ops.cast(sample_weight, self.dtype), "float64")
        if len(weights.shape) > 1:
            weights = ops.reshape(weights, (-1,))
        return ops.broadcast_to(weights, shape)

    def result(self) -> Any:
        matrix = self.total_cm.value
        diagonal = np.arange(self.num_classes, dtype="int32") * (self.num_classes + 1)
        right = ops.take(ops.reshape(matrix, (-1,)), diagonal, axis=0)
        union = ops.sum(matrix, axis=0) + ops.sum(matrix, axis=1) - right
        chosen = np.asarray(self.target_class_ids, "int32")
        right = ops.cast(ops.take(right, chosen, axis=0), "float32")
        union = ops.cast(ops.take(union, chosen, axis=0), "float32")
        occurs = union > 1e-9
        shares = ops.where(occurs, right / (union + config.epsilon()), 0.0)
        return ops.sum(shares) / (ops.sum(ops.cast(occurs, "float32")) + config.epsilon())

    def get_config(self) -> dict:
        own = {
            "num_classes": self.num_classes,
            "target_class_ids": self.target_class_ids,
            "ignore_class": self.ignore_class,
            "sparse_y_true": self.sparse_y_true,
            "sparse_y_pred": self.sparse_y_pred,
            "axis": self.axis,
        }
        return {**super().get_config(), **own}

    def _config_without(self, *names: str) -> dict:
        return {key: value for key, value in IoU.get_config(self).items() if key not in names}


class BinaryIoU(IoU):
    """`IoU` of two classes, predictions being probabilities of the second.

    Args:
        target_class_ids: the classes of the mean.
        threshold: from where on a prediction means the class 1.
        name: see `Metric`.
        dtype: see `IoU`.

    >>> metric = keras.metrics.BinaryIoU(threshold=0.3)
    >>> metric.update_state([0, 1, 0, 1], [0.1, 0.2, 0.4, 0.7])
    >>> round(float(metric.result()), 4)
    0.3333
    """

    def __init__(
        self,
        target_class_ids: Sequence[int] = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(2, target_class_ids, name=name, dtype=dtype)
        self.threshold = threshold

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_pred = ops.cast(y_pred, "float32") >= self.threshold
        super().update_state(y_true, y_pred, sample_weight)

    def get_config(self) -> dict:
        own = self._config_without(
            "num_classes", "ignore_class", "sparse_y_true", "sparse_y_pred", "axis"
        )
        return {**own, "threshold": self.threshold}


class MeanIoU(IoU):
    """`IoU` of all classes; arguments as there.

    Args:
        num_classes: see `IoU`.
        ignore_class: see `IoU`.
        sparse_y_true: see `IoU`.
        sparse_y_pred: see `IoU`.
        axis: see `IoU`.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.MeanIoU(num_classes=2)
    >>> metric.update_state([0, 0, 1, 1], [0, 1, 0, 1])
    >>> round(float(metric.result()), 4)
    0.3333
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(
            num_classes,
            range(num_classes),
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_true=sparse_y_true,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )

    def get_config(self) -> dict:
        return self._config_without("target_class_ids")


class OneHotIoU(IoU):
    """`IoU` for one-hot targets; other arguments as there.

    Args:
        num_classes: see `IoU`.
        target_class_ids: see `IoU`.
        ignore_class: see `IoU`.
        sparse_y_pred: see `IoU`.
        axis: see `IoU`.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.OneHotIoU(num_classes=3, target_class_ids=[0, 2])
    >>> y_pred = [[0.2, 0.3, 0.5], [0.1, 0.2, 0.7], [0.5, 0.3, 0.1]]
    >>> metric.update_state(np.eye(3)[[2, 0, 0]], np.array(y_pred))
    >>> round(float(metric.result()), 4)
    0.5
    """

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(
            num_classes,
            target_class_ids,
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_true=False,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )

    def get_config(self) -> dict:
        return self._config_without("sparse_y_true")


class OneHotMeanIoU(MeanIoU):
    """`MeanIoU` for one-hot targets; arguments as of `OneHotIoU`.

    Args:
        num_classes: see `IoU`.
        ignore_class: see `IoU`.
        sparse_y_pred: see `IoU`.
        axis: see `IoU`.
        name: see `Metric`.
        dtype: see `Metric`.

    >>> metric = keras.metrics.OneHotMeanIoU(num_classes=3)
    >>> y_pred = [[0.2, 0.3, 0.5], [0.1, 0.2, 0.7], [0.5, 0.3, 0.1]]
    >>> metric.update_state(np.eye(3)[[2, 0, 0]], np.array(y_pred))
    >>> round(float(metric.result()), 4)
    0.5
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(
            num_classes,
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_true=False,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )

    def get_config(self) -> dict:
        return self._config_without("target_class_ids", "sparse_y_true")
