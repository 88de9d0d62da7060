"""Metrics: what `fit` and `evaluate` report beside the loss."""

import inspect
from typing import Any

from kerascnn.metrics.accuracy_metrics import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
)
from kerascnn.metrics.loss_metrics import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
)
from kerascnn.metrics.metric import Metric
from kerascnn.metrics.reduction_metrics import Mean, MeanMetricWrapper, Sum
from kerascnn.naming import to_snake_case

_CLASSES = (
    Accuracy,
    BinaryAccuracy,
    BinaryCrossentropy,
    CategoricalAccuracy,
    CategoricalCrossentropy,
    Mean,
    MeanMetricWrapper,
    MeanSquaredError,
    SparseCategoricalAccuracy,
    SparseCategoricalCrossentropy,
    Sum,
)
_BY_NAME = {cls.__name__: cls for cls in _CLASSES}
_BY_NAME |= {to_snake_case(cls.__name__): cls for cls in _CLASSES}
_BY_NAME |= {"bce": BinaryCrossentropy, "BCE": BinaryCrossentropy}
_BY_NAME |= {"mse": MeanSquaredError, "MSE": MeanSquaredError}


def get(identifier: Any) -> Any:
    """The metric that a name, a class, a config dictionary or a callable stands for.

    Raises:
        ValueError: for an unknown name or a thing that can't be called.

    >>> keras.metrics.get("sparse_categorical_accuracy")
    <SparseCategoricalAccuracy name=sparse_categorical_accuracy>
    """
    if identifier is None:
        return None
    metric = identifier
    if isinstance(identifier, str):
        metric = _BY_NAME.get(identifier)
    elif isinstance(identifier, dict):
        cls = _BY_NAME.get(identifier.get("class_name", ""))
        metric = cls(**identifier.get("config", {})) if inspect.isclass(cls) else None
    if inspect.isclass(metric):
        metric = metric()
    if not callable(metric):
        raise ValueError(
            f"Could not interpret metric identifier: {identifier!r}. Known names: "
            f"{', '.join(sorted(_BY_NAME))}."
        )
    return metric


__all__ = [
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "CategoricalAccuracy",
    "CategoricalCrossentropy",
    "Mean",
    "MeanMetricWrapper",
    "MeanSquaredError",
    "Metric",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "Sum",
    "binary_accuracy",
    "categorical_accuracy",
    "get",
    "sparse_categorical_accuracy",
]
